"""How far a subscription has come in a topic's log."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

from . import _wire
from .codes import Code

# At the bound the two lowest spans of a set become one.
MAX_SPANS = 1024
# Of what comes in the order of scores: of one ranking, 10,000 messages, every second one may be
# missing, and the next one may have begun.
RANKED_SPANS = 16384
# How far behind the highest seq a message may stay un-handled before it is given up: the mesh
# keeps no more between a session's floor and its highest ACK.
MAX_OWED = 65536


class Seqs:
    """A set of seqs as ascending spans, inclusive, that neither overlap nor touch."""

    __slots__ = ("_highs", "_lows", "_most")

    def __init__(self, most: int = MAX_SPANS) -> None:
        self._lows: list[int] = []
        self._highs: list[int] = []
        self._most = most

    def __bool__(self) -> bool:
        return bool(self._lows)

    def __contains__(self, seq: object) -> bool:
        assert isinstance(seq, int)
        at = bisect.bisect_left(self._highs, seq)
        return at < len(self._lows) and self._lows[at] <= seq

    def min(self) -> int:
        """The lowest member; 0: there is none."""
        return self._lows[0] if self._lows else 0

    def add(self, low: int, high: int) -> None:
        """Puts low to high in."""
        if high < low:
            return
        if self._highs and self._highs[-1] + 1 == low:  # the usual case
            self._highs[-1] = high
            return
        first = bisect.bisect_left(self._highs, low - 1)
        last = first
        while last < len(self._lows) and self._lows[last] <= high + 1:
            low, high = min(low, self._lows[last]), max(high, self._highs[last])
            last += 1
        self._lows[first:last], self._highs[first:last] = [low], [high]
        if len(self._lows) > self._most:
            del self._lows[1], self._highs[0]

    def remove(self, low: int, high: int) -> None:
        """Takes low to high out."""
        first = bisect.bisect_left(self._highs, low)
        last = first
        lows: list[int] = []
        highs: list[int] = []
        while last < len(self._lows) and self._lows[last] <= high:
            if self._lows[last] < low:
                lows.append(self._lows[last])
                highs.append(low - 1)
            if self._highs[last] > high:
                lows.append(high + 1)
                highs.append(self._highs[last])
            last += 1
        self._lows[first:last], self._highs[first:last] = lows, highs

    def lacks(self, high: int) -> tuple[int, int]:
        """How many of 1 to high are not in the set, and the lowest of them."""
        count, first = high, 1
        for low, top in zip(self._lows, self._highs, strict=True):
            low, top = max(low, 1), min(top, high)
            if low > top:
                continue
            count -= top - low + 1
            if low <= first:
                first = top + 1
        return count, first


@dataclass
class Cursor:
    """How far one subscription has come in one topic."""

    ranked: bool = False
    epoch: int = 0
    # The highest seq handed over or named by Progress: where to resume.
    high: int = 0
    # What was had is of a log that is gone: the next resume asks for the topic from its beginning.
    void: bool = False
    # Handed over with success, or will not come.
    done: Seqs = field(default_factory=Seqs)
    # Handed over and refused by the handler: the resume must not skip it.
    owed: Seqs = field(default_factory=Seqs)

    def __post_init__(self) -> None:
        self.forget_done()

    def forget_done(self) -> None:
        self.done = Seqs(RANKED_SPANS if self.ranked else MAX_SPANS)

    @property
    def fresh(self) -> bool:
        """Whether nothing of the topic was had yet."""
        return self.high == 0 and not self.done and not self.owed

    def position(self) -> int:
        """The seq to resume after, as far as what was answered tells."""
        low = self.owed.min()
        return low - 1 if 0 < low <= self.high else self.high

    def restart(self, epoch: int, seq: int) -> None:
        """Begins at seq of an epoch, forgetting everything."""
        self.epoch, self.high, self.owed = epoch, seq, Seqs()
        self.forget_done()
        if seq > 0:
            self.done.add(0, seq)

    def succeeded(self, seq: int) -> None:
        self.high = max(self.high, seq)
        self.done.add(seq, seq)
        self.owed.remove(seq, seq)

    def failed(self, seq: int) -> tuple[int, int] | None:
        """Notes that a handler refused seq. What is given up for good, the distance being too large, is returned."""
        self.high = max(self.high, seq)
        self.owed.add(seq, seq)
        low, top = self.owed.min(), self.high - MAX_OWED - 1
        if low > top:
            return None
        self.owed.remove(low, top)
        self.done.add(low, top)
        return low, top

    def progress(self, p: _wire.Progress) -> bool:
        """Notes that seqs will not come. It returns whether the log began anew."""
        if p.epoch not in (0, self.epoch):
            if p.epoch < self.epoch:
                return False  # greater is newer: late word of a log that is gone
            if (self.epoch != 0 or p.code == Code.EPOCH_CHANGED) and not (self.epoch == 0 and self.fresh):
                # Whether the seqs are of the old log or the new one makes no difference: resuming too
                # early costs a repetition that is dropped, too late would lose messages.
                self.restart(p.epoch, 0)
                return True
            self.epoch = p.epoch  # named for the first time
        if p.last > 0:
            self.high = max(self.high, p.last)
            self.done.add(max(p.first, 1), p.last)
            self.owed.remove(p.first, p.last)
        return False
