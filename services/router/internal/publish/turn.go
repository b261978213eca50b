package publish

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/services/router/internal/admission"
)

// turn is one request of an edge: messages of one connection, let in one after the other. An edge
// sends what a client has sent, up to its publish_window, which knows nothing of what this router
// lets one producer have unanswered: so a turn pauses where the producer's own limits are in the
// way, and goes on as answers make room. Its client waits meanwhile, since the edge has one request
// of a connection under way. What is refused is refused alone: the rest is let in as it can be, in
// the order in which it was sent.
//
// One goroutine at a time runs it: the subscription's, and after a pause the one of Clients.
type turn struct {
	clients *Clients
	items   []*meshv1.ClientPublish_Item
	size    int64 // bytes
	next    int   // item
	until   time.Time
	refused bool
	to      *gathered

	answered atomic.Int64 // items
	state    atomic.Int32
}

// States of a turn.
const (
	running int32 = iota
	paused        // for anything
	crowded       // until one of its messages is answered, or for so long
)

// Published implements Receiver.
func (t *turn) Published(ref uint64, res *Result) {
	t.to.Published(ref, res)
	t.answered.Add(1)
	t.proceed(crowded)
}

// proceed has the turn go on if it is in that state.
func (t *turn) proceed(from int32) {
	if t.state.CompareAndSwap(from, running) {
		t.clients.patient.Add(-t.size)
		t.clients.ready(t)
	}
}

func (t *turn) run() {
	for t.next < len(t.items) {
		answered := t.answered.Load()
		if later := t.offer(time.Now()); later != nil {
			t.pause(later, answered)
			return
		}
		t.next++
	}
	t.end()
}

// offer offers the next item.
func (t *turn) offer(now time.Time) *admission.Later {
	it, p := t.items[t.next], t.clients.publisher
	if t.clients.draining.Load() {
		t.Published(uint64(t.next), refusal(errDraining()))
		return nil
	}
	refused, later := p.offer(now, &Message{
		Context: context.Background(), Producer: client(it), From: from(it), FromClient: true,
		Patient: now.Before(t.until) && t.clients.patient.Load() < mostPatient, Ref: uint64(t.next), To: t,
		Request: &pushmeshv1.PublishRequest{
			Topic: it.GetTopic(), Payload: it.GetPayload(), Headers: it.GetHeaders(), DedupeKey: it.GetDedupeKey(),
			Traceparent: it.GetTraceparent(),
		},
	})
	t.refused = t.refused || refused
	return later
}

// pause has the turn go on later, when so many of its items had been answered before it asked.
func (t *turn) pause(later *admission.Later, answered int64) {
	t.clients.patient.Add(t.size)
	state := paused
	if later.Crowded {
		state = crowded
	}
	wait := max(min(later.Wait, time.Until(t.until)), time.Millisecond)
	t.state.Store(state)
	if later.Crowded && t.answered.Load() != answered { // meanwhile, and nobody saw that it pauses
		t.proceed(state)
		return
	}
	time.AfterFunc(wait, func() { t.proceed(state) })
}

// end lets the reply go; where the client goes on sending what is refused, late, as a producer's
// call is answered (Service.penalty). It costs its connection alone, of which no other request is
// under way.
func (t *turn) end() {
	if !t.refused {
		t.to.release()
		return
	}
	d := t.clients.publisher.cfg.Admission.Penalty(time.Now(), client(t.items[0]))
	t.items = nil // nothing is kept while it waits
	if d == 0 {
		t.to.release()
		return
	}
	time.AfterFunc(d, t.to.release)
}
