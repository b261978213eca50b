"""Who is in a topic, as edges have told."""

from __future__ import annotations

from dataclasses import dataclass, field

from . import _wire


@dataclass(slots=True)
class Difference:
    """What is different from what was told before, by user."""

    # Whatever was told before holds no more.
    all: bool = False
    joined: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


class Crowd:
    """Knows nothing at first."""

    def __init__(self) -> None:
        self.known = False  # something was told
        self.states: dict[str, bytes] = {}  # of users; none where counts_only
        self.count = 0
        self.counts_only = False

    def take(self, told: _wire.Presence) -> Difference | None:
        """Takes the whole or what has changed. None: nothing is different."""
        named = self.known and not self.counts_only
        differs = not self.known or (self.count, self.counts_only) != (told.count, told.counts_only)
        self.known, self.count, self.counts_only = True, told.count, told.counts_only
        if self.counts_only:
            self.states = {}
            return Difference() if differs else None
        was = self.states
        self.states = {} if told.snapshot else dict(was)
        difference = Difference()
        for member in told.members:
            self.states[member.user] = member.state
            if member.user not in was:
                difference.joined.append(member.user)
            elif was[member.user] != member.state:
                difference.changed.append(member.user)
        for user in told.left:
            self.states.pop(user, None)
        difference.left = sorted(was.keys() - self.states.keys())
        if not named:
            return Difference(all=True)
        return difference if differs or difference.joined or difference.changed or difference.left else None
