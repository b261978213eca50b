"""What callbacks are told."""

from __future__ import annotations

from dataclasses import dataclass

from .codes import Code


@dataclass(frozen=True, slots=True)
class Connection:
    """What an edge answered to Hello."""

    id: int
    edge: str
    client_id: str
    user: str
    # The session existed before.
    resumed: bool
    features: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Gap:
    """Messages of a subscription that will not come, or a position that was lost."""

    filter: str
    # Empty where a whole subscription with wildcards is concerned.
    topic: str = ""
    # That holds now.
    epoch: int = 0
    # Seqs, inclusive, where they are known; else 0 and 0.
    first: int = 0
    last: int = 0
    # How many can no longer be had, as far as the mesh knows.
    missed: int = 0
    # Why. UNSUPPORTED: the topic is ephemeral, so that there is nothing to begin with, to go on from
    # or to ACK; the subscription gets what is published while it is connected.
    code: Code = Code.OK


@dataclass(slots=True)
class Stats:
    """Counts since the client was opened."""

    connected: bool = False
    # Welcomes.
    connects: int = 0
    delivered: int = 0
    # Came again, and were not handed over again.
    repeated: int = 0
    acked: int = 0
    nacked: int = 0
    # Seconds, of the last Ping that was answered; 0: none was yet.
    rtt: float = 0.0
