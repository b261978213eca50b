"""Where a subscription stands, by the edge's word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _topics, _wire
from ._position import Cursor
from .codes import Code
from .events import Gap

if TYPE_CHECKING:
    from ._inbox import Inbox
    from .subscription import Subscription


def subscribed(inbox: Inbox, sub: Subscription, frame: _wire.Subscribed) -> None:
    """Takes the answer to Subscribe."""
    resumed = sub.active
    places = list(frame.positions)
    if not _topics.wild(sub.filter):
        places.insert(0, _wire.TopicPosition(sub.filter, frame.epoch, frame.head, frame.recovered, frame.missed))
    elif not places and frame.missed > 0:
        inbox.gap(Gap(sub.filter, missed=frame.missed, code=Code.RETENTION))
    for place in places:
        _stand(inbox, sub, place, resumed)
    sub.stands()


def _stand(inbox: Inbox, sub: Subscription, at: _wire.TopicPosition, resumed: bool) -> None:
    """Places the cursor of one topic."""
    track = inbox.topic(at.topic).track(sub)
    if track is None:
        return
    cursor = track.cursor
    lost = _asked(sub, resumed) and not at.recovered
    why = Code.UNSUPPORTED if at.epoch == 0 and not resumed else Code.RETENTION
    if sub.shared or (at.epoch == 0 and not lost):
        # an ephemeral topic has neither epoch nor positions
        if why == Code.UNSUPPORTED and _wants_log(sub):
            inbox.gap(Gap(sub.filter, at.topic, code=why))
        return
    unknown = cursor.epoch == 0 and cursor.high == 0
    if at.epoch == 0 and resumed and unknown:
        return  # nothing was had of it, and it was told that there is no log
    if unknown:
        cursor.restart(*_start_at(sub, at))
        if sub.request.start == _wire.Begin.SESSION:
            cursor.forget_done()  # what the session still lacks may lie anywhere
    if at.epoch and cursor.epoch and cursor.epoch != at.epoch:
        _start_over(inbox, sub, cursor, at, Code.EPOCH_CHANGED)
    elif lost and cursor.high > at.head:
        # The log has not come as far as the position: what it has, and will have, under these numbers
        # is not what was had.
        _start_over(inbox, sub, cursor, at, why)
    else:
        cursor.epoch = at.epoch
        if sub.ranked and resumed:
            _stand_again(inbox, sub, cursor, at)
        elif lost or at.missed > 0:
            inbox.gap(Gap(sub.filter, at.topic, at.epoch, missed=at.missed, code=why))


def _wants_log(sub: Subscription) -> bool:
    """Whether it asks for what only durable topics have. A position that was not recovered is told anyway."""
    if sub.request.start in (_wire.Begin.EARLIEST, _wire.Begin.LAST_N, _wire.Begin.SESSION):
        return True
    return sub.request.ack and not sub.shared


def _start_over(inbox: Inbox, sub: Subscription, cursor: Cursor, at: _wire.TopicPosition, why: Code) -> None:
    """Gives up what was known of a topic, whose positions are void."""
    cursor.restart(at.epoch, 0)
    cursor.void = True
    inbox.gap(Gap(sub.filter, at.topic, at.epoch, missed=at.missed, code=why))


def _stand_again(inbox: Inbox, sub: Subscription, cursor: Cursor, at: _wire.TopicPosition) -> None:
    """Notes what a ranked subscription without a session has missed: it goes on with what is live."""
    if sub.request.start == _wire.Begin.SESSION:
        return
    missed, first = cursor.done.lacks(at.head)
    if missed > 0:
        inbox.gap(Gap(sub.filter, at.topic, cursor.epoch, first, at.head, missed, Code.RETENTION))
    cursor.restart(cursor.epoch, at.head)


def _asked(sub: Subscription, resumed: bool) -> bool:
    """Whether the Subscribe just answered named a position, so that recovered=false is a loss."""
    if sub.request.start == _wire.Begin.SESSION:
        return False  # missed says it all
    return resumed or sub.request.start == _wire.Begin.AFTER_SEQ or bool(sub.request.positions)


def _start_at(sub: Subscription, at: _wire.TopicPosition) -> tuple[int, int]:
    """The position before the first message that the first request asked for, and its epoch where it named one."""
    request = sub.request
    for p in request.positions:
        if p.topic == at.topic:
            return p.epoch, p.seq
    match request.start:
        case _wire.Begin.EARLIEST | _wire.Begin.SESSION:
            return 0, 0
        case _wire.Begin.AFTER_SEQ:
            return request.epoch, request.seq
        case _wire.Begin.LAST_N:
            return 0, at.head - min(at.head, request.seq)
    return 0, at.head
