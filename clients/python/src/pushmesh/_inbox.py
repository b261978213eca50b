"""What comes for subscriptions: whose it is, where it stands, and when it is ACKed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from typing import Any

from . import _acks, _standing, _topics, _wire
from ._config import milliseconds
from ._delivery import Delivery, Entry, Topic, Track
from ._engine import Engine
from ._link import Broken, Link
from ._position import Cursor
from .codes import Code
from .errors import Nack, PushmeshError, Refused
from .events import Gap, Stats
from .subscription import Subscription

log = logging.getLogger("pushmesh")

# Topics whose cursors are kept. Beyond it those of some topic are forgotten, which a resume reports
# as any other position it has lost: as messages from the head on.
MAX_TOPICS = 1 << 16
# What waits for handlers, beside the number of messages.
MAX_QUEUE_BYTES = 8 << 20
# The same while somebody waits for an answer that lies behind what the edge sends.
MAX_ASIDE = 1 << 16
MAX_ASIDE_BYTES = 64 << 20
# How long nothing may be handed over while the reader can't read on to an answer that somebody,
# maybe a handler, waits for.
HANDLER_PATIENCE = 5.0
MAX_REASON = 256
# How long a handler that was cancelled, as the client closes, may take to end.
CANCELLED_WITHIN = 1.0


class Inbox:
    """The subscriptions of a client, and their messages on the way from the reader to the handlers."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._over = False
        self.stats = Stats()
        self._subs: dict[int, Subscription] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._topics: dict[str, Topic] = {}
        self._acks = _acks.Pending()
        self._flush: asyncio.TimerHandle | None = None
        self._count = 0  # deliveries that wait in queues, and their bytes
        self._bytes = 0

    @property
    def closing(self) -> bool:
        """Nothing is handed over any more."""
        return self._over or self.engine.closing

    # Subscribing.

    def add(self, sub: Subscription) -> None:
        self.engine.check_open()
        sub.request.id = self.engine.next_id()
        self._subs[sub.id] = self.engine.answers[sub.id] = sub
        for topic in self._topics.values():
            if _topics.match(sub.filter, topic.name):
                self._add(topic, sub)
        sub.start()
        self.ask_again(sub)

    def ask_again(self, sub: Subscription) -> None:
        link = self.engine.link
        if link is None or sub.over or sub.sent:
            return
        request = sub.frame()
        sub.was_sent(request)
        try:
            link.put(request)
        except Refused as refused:
            sub.end(refused)
        self.engine.moved.set()

    def drop(self, sub: Subscription) -> None:
        """Ends a subscription that nobody waits for any more."""
        if self.engine.link is not None and sub.sent and not sub.over:
            self.engine.link.put(_wire.Unsubscribe(sub.id))
        sub.end(None)

    def forget(self, sub: Subscription) -> None:
        """Takes a subscription out of everything."""
        self._subs.pop(sub.id, None)
        self.engine.answers.pop(sub.id, None)
        for name, topic in list(self._topics.items()):
            track = topic.track(sub)
            if track is None:
                continue
            topic.tracks.remove(track)
            for entry in list(track.held.values()):
                self.answer(entry, None)
            if not topic.tracks:
                del self._topics[name]

    def tracks(self, sub: Subscription) -> Iterator[tuple[str, Track]]:
        for name, topic in self._topics.items():
            if (track := topic.track(sub)) is not None:
                yield name, track

    def workers(self) -> list[asyncio.Task[None]]:
        """The tasks that run handlers, also of subscriptions that have ended."""
        return list(self._workers)

    def work(self, what: Coroutine[Any, Any, None], name: str) -> None:
        """Has a task run handlers."""
        worker = asyncio.create_task(what, name=name)
        self._workers.add(worker)
        worker.add_done_callback(self._workers.discard)

    def gap(self, gap: Gap) -> None:
        self.engine.tell(self.engine.config.on_gap, gap)

    # As a part of the client.

    def connected(self, link: Link) -> None:
        self.stats.connects += 1
        for sub in list(self._subs.values()):
            sub.drop_durable()
        for topic in self._topics.values():
            for track in topic.tracks:
                track.arrived = 0
        for sub in list(self._subs.values()):
            self.ask_again(sub)

    async def receive(self, frame: _wire.Message | _wire.Progress, link: Link) -> None:
        if isinstance(frame, _wire.Message):
            await self._message(frame, link)
            return
        for track in self.topic(frame.topic).concerned(frame):
            track.sub.push(track, frame)

    def take(self, frame: _wire.Frame) -> None:
        match frame:
            case _wire.Subscribed():
                if (sub := self._subs.get(frame.id)) is not None:
                    _standing.subscribed(self, sub, frame)
            case _wire.Unsubscribed():
                if (sub := self._subs.get(frame.id)) is not None:
                    sub.unsubscribed(Refused(Code(frame.code), frame.reason))

    def broken(self) -> None:
        self.flush()
        for sub in list(self._subs.values()):
            sub.disconnected()
        self.engine.moved.set()

    def end(self, why: PushmeshError) -> None:
        self._over = True
        for sub in list(self._subs.values()):
            if not sub.active:
                sub.end(why)
            sub.stop()
        self.engine.moved.set()

    async def drain(self, within: float) -> None:
        """Waits for the handlers that run, and cancels them where they take longer. One that takes no notice of that is left behind."""
        workers = self.workers()
        try:
            if workers:
                await asyncio.wait(workers, timeout=within)
        finally:
            for worker in workers:
                worker.cancel()
        if workers:
            _, left = await asyncio.wait(workers, timeout=CANCELLED_WITHIN)
            for worker in left:
                log.error("%s has a handler that goes on although it was cancelled: nobody waits for it any more", worker.get_name())
        if self.engine.link is None:
            for sub in list(self._subs.values()):
                sub.end(self.engine.end_error())

    def settle(self) -> None:
        self.flush()

    # Messages.

    def topic(self, name: str) -> Topic:
        """Finds or makes what is known of a topic."""
        topic = self._topics.get(name)
        if topic is not None:
            return topic
        topic = Topic(name, _acks.Run(name))
        for sub in self._subs.values():
            if _topics.match(sub.filter, name):
                self._add(topic, sub)
        if topic.tracks:
            if len(self._topics) >= MAX_TOPICS:
                self._evict()
            self._topics[name] = topic
        return topic

    def _add(self, topic: Topic, sub: Subscription) -> None:
        topic.tracks.append(Track(sub, Cursor(sub.ranked), _acks.Run(topic.name, sub.id)))

    def _evict(self) -> None:
        """Forgets one topic, an ephemeral one if there is one among a few."""
        victim = ""
        for tries, (name, topic) in enumerate(self._topics.items()):
            victim = name
            if tries >= 32 or topic.ephemeral:
                break
        del self._topics[victim]

    async def _message(self, message: _wire.Message, link: Link) -> None:
        topic = self.topic(message.topic)
        tracks = topic.involved(message)
        if not tracks:
            return
        size = len(message.payload) + len(message.topic) + 64
        await self._room(size)
        if self.closing:
            return
        delivery = Delivery(message, link, topic, queued=len(tracks), unanswered=len(tracks))
        self._count += 1
        self._bytes += size
        for track in tracks:
            track.arrived = max(track.arrived, message.seq)
            entry = Entry(self, delivery, track)
            delivery.entries.append(entry)
            track.sub.push(track, entry)

    async def _room(self, size: int) -> None:
        """
        Waits while the queues are full: TCP then tells the edge. Un-ACKed messages alone never fill
        them, for the window is smaller. While somebody waits for an answer the reader reads on, as far
        as there is room aside: whoever waits may be a handler. Where that is not enough either, the
        connection is given up, which answers everybody.
        """
        delivered = self.stats.delivered
        while self._crowded(size) and not self.closing:
            self.engine.moved.clear()
            try:
                async with asyncio.timeout(HANDLER_PATIENCE):
                    await self.engine.moved.wait()
            except TimeoutError:
                if self._owed() and self.stats.delivered == delivered:
                    raise Broken(
                        "an answer is waited for, and more than 65,536 messages or 64 MiB before it wait for a handler that does not return"
                    ) from None
            delivered = self.stats.delivered

    def _crowded(self, size: int) -> bool:
        if self._count == 0 or (self._count < (self.engine.config.receive_window or 256) + 64 and self._bytes + size <= MAX_QUEUE_BYTES):
            return False
        if self._count < MAX_ASIDE and self._bytes + size <= MAX_ASIDE_BYTES:
            return not self._owed()
        return True

    def _owed(self) -> bool:
        """Whether somebody waits for an answer of the edge."""
        return len(self.engine.answers) > len(self._subs) or any(sub.awaited for sub in self._subs.values())

    def left_queue(self, entry: Entry) -> None:
        delivery = entry.delivery
        delivery.queued -= 1
        if delivery.queued == 0:
            self._count -= 1
            self._bytes -= len(delivery.message.payload) + len(delivery.message.topic) + 64
            self.engine.moved.set()

    def dropped(self, entry: Entry) -> None:
        """A message is not handed over any more."""
        self.left_queue(entry)
        entry.void = True
        entry.delivery.unanswered -= 1
        if entry.message.seq and entry.delivery.unanswered == 0:
            self._settle(entry.delivery)

    def hand(self, entry: Entry) -> bool:
        """Whether a message is to be handed over: not where that was done before."""
        self.left_queue(entry)
        track, seq = entry.track, entry.message.seq
        if seq:
            if seq in track.cursor.done and not track.sub.shared:
                self.stats.repeated += 1
                entry.epoch = track.cursor.epoch
                self._answered(entry, None)
                return False
            if (held := track.has(seq)) is not None:
                self.stats.repeated += 1
                entry.epoch = track.cursor.epoch
                held.again.append(entry)
                return False
            entry.epoch = track.cursor.epoch
            track.held[seq] = entry
        self.stats.delivered += 1
        return True

    def answer(self, entry: Entry, nack: Nack | None) -> None:
        """Takes the application's word about a message. The first one counts."""
        if entry.answered:
            return
        seq, track = entry.message.seq, entry.track
        for repeated in entry.again:
            self._answered(repeated, nack)
        if track.held.get(seq) is entry:
            del track.held[seq]
        self._answered(entry, nack)
        track.sub.answered()

    def _answered(self, entry: Entry, nack: Nack | None) -> None:
        entry.answered = True
        delivery, track, seq = entry.delivery, entry.track, entry.message.seq
        delivery.unanswered -= 1
        cursor = track.cursor
        entry.void = entry.void or track.sub.over or (entry.epoch != 0 and cursor.epoch != entry.epoch)
        if seq and not entry.void:
            if track.sub.shared:
                entry.nack = nack if track.sub.request.ack else None
            elif nack is None or not track.sub.request.ack:
                cursor.succeeded(seq)
            else:
                entry.nack = nack
                if (given := cursor.failed(seq)) is not None:
                    self.gap(Gap(
                        track.sub.filter, delivery.topic.name, cursor.epoch, given[0], given[1],
                        given[1] - given[0] + 1, Code.ATTEMPTS_EXHAUSTED,
                    ))
        if seq and delivery.unanswered == 0:
            self._settle(delivery)

    def _settle(self, delivery: Delivery) -> None:
        """
        ACKs a message that every subscription concerned has had, or Nacks it. What came over another
        connection comes again over this one, if it is still to be ACKed there.
        """
        link, message = self.engine.link, delivery.message
        if link is None or delivery.link is not link:
            return
        entries = [e for e in delivery.entries if not e.void and e.track.sub.request.ack]
        nack = next((e.nack for e in entries if e.nack is not None), None)
        topic = delivery.topic
        if nack is not None:
            self.flush()
            self.stats.nacked += 1
            sub = message.subs[0] if message.subs else topic.plain_sub()
            reason = nack.reason.encode(errors="replace")[:MAX_REASON].decode(errors="ignore")
            link.put(_wire.Nack(topic.name, message.seq, milliseconds(nack.after), reason, sub))
        elif entries and not message.subs:
            through = all(e.track.clear_below(message.seq) for e in entries)
            self._ack(topic.plain, entries[0].epoch, topic.plain_sub(), message.seq, through)
        else:
            for e in entries:
                through = e.track.clear_below(message.seq) and not e.track.sub.shared and not e.track.sub.ranked
                self._ack(e.track.run, e.epoch, e.track.sub.id, message.seq, through)

    def _ack(self, run: _acks.Run, epoch: int, sub: int, seq: int, through: bool) -> None:
        """Has seq ACKed within ack_delay."""
        if run.pending and (run.epoch, run.sub) != (epoch, sub):
            self.flush()
        run.epoch, run.sub = epoch, sub
        if not self._acks.add(run, seq, through=through):
            return
        self.stats.acked += 1
        if run.full or not self.engine.config.ack_delay:
            self.flush()
        elif self._flush is None:
            self._flush = asyncio.get_running_loop().call_later(self.engine.config.ack_delay, self.flush)

    def flush(self) -> None:
        """Sends the ACKs that wait. Without a connection they are forgotten: a new one knows nothing of the old one's messages."""
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        if (link := self.engine.link) is None:
            self._acks.clear()
            return
        for ack in self._acks.take():
            link.put(ack)

    def progress(self, track: Track, p: _wire.Progress) -> None:
        """Takes note of seqs that will not come."""
        if track.sub.over or 0 < p.epoch < track.cursor.epoch:
            return  # late word of a log that is gone
        restarted, code = track.cursor.progress(p), Code(p.code)
        if restarted or code.lost:
            missed = p.last - max(p.first, 1) + 1 if p.last >= max(p.first, 1) else 0
            self.gap(Gap(track.sub.filter, p.topic, track.cursor.epoch, p.first, p.last, missed, code))
