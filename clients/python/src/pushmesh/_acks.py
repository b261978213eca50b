"""Gathers the ACKs of a connection and says them in few frames."""

from __future__ import annotations

from dataclasses import dataclass, field

from . import _wire

# ACKs of a run that can't be told as "all up to": so many are sent at once.
MAX_SINGLES = 512
# Entries of a frame, which is far below the longest one then.
MAX_ENTRIES = 100


@dataclass(slots=True, eq=False)
class Run:
    """The ACKs of one topic that name the same subscription; 0: the plain ones."""

    topic: str
    sub: int = 0
    epoch: int = 0
    # Covers everything up to it; 0: nothing.
    through: int = 0
    singles: list[int] = field(default_factory=list)
    # Something of it waits to be sent.
    pending: bool = False

    @property
    def full(self) -> bool:
        return len(self.singles) >= MAX_SINGLES


class Pending:
    """What is to be sent on the present connection."""

    def __init__(self) -> None:
        self._runs: list[Run] = []

    def __bool__(self) -> bool:
        return bool(self._runs)

    def add(self, run: Run, seq: int, *, through: bool) -> bool:
        """
        Has seq of the run ACKed; through: everything sent before it was dealt with, too.
        It returns whether that says more than what waits already.
        """
        if seq <= run.through:
            return False
        if through:
            run.through = seq
            run.singles.clear()
        else:
            run.singles.append(seq)
        if not run.pending:
            run.pending = True
            self._runs.append(run)
        return True

    def take(self) -> list[_wire.Ack]:
        """The frames to send, which wait no more."""
        entries = []
        for run in self._runs:
            if run.through > 0:
                entries.append(_wire.Entry(run.topic, run.through, True, run.sub, run.epoch))
            entries += [_wire.Entry(run.topic, seq, False, run.sub, run.epoch) for seq in run.singles]
        self.clear()
        return [_wire.Ack(entries[at : at + MAX_ENTRIES]) for at in range(0, len(entries), MAX_ENTRIES)]

    def clear(self) -> None:
        """Forgets everything."""
        for run in self._runs:
            run.through, run.pending = 0, False
            run.singles.clear()
        self._runs.clear()
