package hub

import (
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// fanSlice is how many deliveries are made before other work has its turn.
const fanSlice = 256

// fanout is the live message in hand and how far it has come. A topic with very many subscribers takes several slices, and
// no other message overtakes it meanwhile.
type fanout struct {
	m      *exchange.Message
	ts     *topicState
	at     int      // next of ts.tracks
	joins  []subRef // wildcard subscriptions that may have no track at ts yet
	joined int
	subs   []subRef // instead of tracks, for an ephemeral topic without a state of its own
	sub    int
	next   int    // of the messages of the first batch in hub.inbox
	serial uint32 // of this message
}

func (f *fanout) active() bool { return f.m != nil }

// inbound is a batch of live messages, or a subscription that begins among them.
type inbound struct {
	live  exchange.Live
	start *activation
}

// fanSlice hands on about budget deliveries and says how many it made.
func (h *Hub) fanSlice(budget int) int {
	done := 0
	for done < budget {
		switch {
		case h.fan.active():
			done += h.fanStep(budget-done) + 1
		case h.inbox.len() == 0:
			return done
		case h.inbox.peek().start != nil:
			n, over := h.activate(h.inbox.peek().start)
			if over {
				h.inbox.pop()
			}
			done += n
		default:
			h.nextMessage()
			done++
		}
	}
	return done
}

// nextMessage takes the next live message up.
func (h *Hub) nextMessage() {
	live, f := &h.inbox.peek().live, &h.fan
	if f.next == len(live.Messages) {
		h.liveDone()
		return
	}
	f.m = live.Messages[f.next]
	f.next++
	f.serial++
	f.ts, f.at = h.topics[f.m.Topic], 0
	f.joins, f.joined = f.joins[:0], 0
	f.subs, f.sub = f.subs[:0], 0
	switch {
	case f.ts != nil:
		f.joins = h.missing(f.joins, f.ts)
	case f.m.Seq == 0:
		f.subs = h.matching(f.subs, f.m.Topic)
	default:
		f.joins = h.matching(f.joins, f.m.Topic)
		if len(f.joins) > 0 {
			f.ts = h.topic(f.m.Topic)
			f.ts.wildAt = h.wildLog.next()
		}
	}
	if f.ts != nil && f.m.Seq > 0 {
		f.ts.came(f.m)
	}
}

// came notes how far the live stream of the topic is.
func (ts *topicState) came(m *exchange.Message) {
	switch {
	case m.Epoch > ts.epoch:
		ts.epoch, ts.last = m.Epoch, m.Seq
	case m.Epoch == ts.epoch:
		ts.last = max(ts.last, m.Seq)
	}
}

func (h *Hub) liveDone() {
	in, _ := h.inbox.pop()
	h.fan.next = 0
	h.cfg.LiveDone(in.live)
}

// fanStep goes on with the message in hand and says how many deliveries it made.
func (h *Hub) fanStep(budget int) (done int) {
	f := &h.fan
	for ; f.joined < len(f.joins) && done < budget; f.joined++ {
		if s := f.joins[f.joined].get(); s != nil {
			h.joinTopic(s, f.ts, f.m)
		}
		done++
	}
	for f.ts != nil && f.at < len(f.ts.tracks) && done < budget {
		t := f.ts.tracks[f.at]
		f.at++
		done++
		if f.m.Seq > 0 {
			h.offer(t, f.m)
		} else if t.held {
			continue
		} else if t.kind == kindPlain {
			h.ephemeral(t.c, nil, 0, t.overflow, f.m)
		} else {
			h.ephemeral(t.c, t, 0, t.overflow, f.m)
		}
	}
	for ; f.sub < len(f.subs) && done < budget; f.sub++ {
		if s := f.subs[f.sub].get(); s != nil {
			h.offerEphemeral(s, f.m)
		}
		done++
	}
	if done < budget {
		h.fanned()
	}
	return done
}

// fanned ends the message in hand.
func (h *Hub) fanned() {
	f := &h.fan
	ts := f.ts
	f.m, f.ts = nil, nil
	clear(f.joins)
	clear(f.subs)
	if ts != nil {
		h.letGoTopic(ts)
	}
	if f.next == len(h.inbox.peek().live.Messages) {
		h.liveDone()
	}
}

// joinTopic gives a wildcard subscription its track at a topic that it has none at: the topic appeared after it, so
// it starts at seq 1, or where its session stands.
func (h *Hub) joinTopic(s *sub, ts *topicState, m *exchange.Message) {
	if !s.active {
		return
	}
	if t := h.trackFor(s, ts); t != nil {
		h.share(t, s)
		return
	}
	if s.bounded() && int(s.topics) >= h.lim.WildcardTopics {
		h.endSub(s, wirev1.Code_CODE_TOO_MANY_TOPICS, "the filter matches too many topics by now")
		return
	}
	t := h.addTrack(s, ts)
	s.topics++
	if m.Seq > 0 && !s.headless {
		t.epoch = m.Epoch
	}
	if s.kind == kindSession && m.Seq > 0 {
		h.resumeTrack(t, m.Epoch)
	}
	if t.held = !s.open; t.held {
		t.behind = true
	}
}

// offerEphemeral hands an ephemeral message to a wildcard subscription that has no track for it.
func (h *Hub) offerEphemeral(s *sub, m *exchange.Message) {
	if !s.active || !s.open {
		return
	}
	if s.kind != kindPlain {
		h.ephemeral(s.c, nil, s.id, s.overflow, m)
		return
	}
	if s.c.stamp != h.fan.serial {
		s.c.stamp = h.fan.serial
		h.ephemeral(s.c, nil, 0, s.overflow, m)
	}
}

// ephemeral queues a message that no log has. t or sub say whose it is, where it is not for all plain subscriptions.
func (h *Hub) ephemeral(c *conn, t *track, sub uint32, overflow wirev1.Overflow, m *exchange.Message) {
	if m.ExpiresAt != 0 && m.ExpiresAt <= h.wall {
		h.stats.Drops.add(wirev1.Code_CODE_EXPIRED, 1)
		return
	}
	if c.state != stateOpen || c.draining {
		return
	}
	if overflow == wirev1.Overflow_OVERFLOW_CONFLATE && h.replaceQueued(c, t, sub, m) {
		return
	}
	for c.out.n > 0 {
		why := h.full(c, len(m.Frame))
		if why == wirev1.Code_CODE_OK {
			break
		}
		if overflow == wirev1.Overflow_OVERFLOW_DISCONNECT {
			h.fail(c, wirev1.Code_CODE_SLOW_CONSUMER, "the subscription's queue is full")
			return
		}
		h.stats.Drops.add(why, 1)
		if !h.dropEphemeral(c) {
			return
		}
	}
	h.push(c, item{kind: itemMessage, m: m, t: t, sub: sub})
}

// dropEphemeral drops the oldest queued message that no log has; false where there is none.
func (h *Hub) dropEphemeral(c *conn) bool {
	for i := range c.out.n {
		if it := c.out.at(i); it.kind == itemMessage && it.m.Seq == 0 && !c.out.begun(i) {
			h.kill(c, i)
			return true
		}
	}
	return false
}

// replaceQueued puts m in the place of an older message of its topic that has not left.
func (h *Hub) replaceQueued(c *conn, t *track, sub uint32, m *exchange.Message) bool {
	for i := range c.out.n {
		it := c.out.at(i)
		if it.kind != itemMessage || it.t != t || it.sub != sub || c.out.begun(i) || it.m.Topic != m.Topic {
			continue
		}
		h.account(c, it, -1)
		it.m = m
		h.account(c, it, 1)
		h.stats.Drops.add(wirev1.Code_CODE_CONFLATED, 1)
		return true
	}
	return false
}
