package publish

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/services/router/internal/admission"
)

// clientRequest is one request of an edge: messages of one connection, published one after the
// other. An edge sends what a client has sent, up to its publish window, which is not related to
// the number of unanswered messages that this router allows one producer: so a request pauses while
// the producer's limits are reached, and continues as answers make room. Its client waits
// meanwhile, since the edge has one request of a connection under way. A message that is refused is
// refused alone: the rest is published as limits allow, in the order in which it was sent.
//
// One goroutine at a time runs it: the subscription's, and after a pause the one of Clients.
type clientRequest struct {
	clients *Clients
	items   []*meshv1.ClientPublish_Item
	size    int64 // bytes
	next    int   // item
	until   time.Time
	refused bool
	to      *pendingReply

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
func (t *clientRequest) Published(ref uint64, res *Result) {
	t.to.Published(ref, res)
	t.answered.Add(1)
	t.proceed(crowded)
}

// proceed makes the request continue if it is in that state.
func (t *clientRequest) proceed(from int32) {
	if t.state.CompareAndSwap(from, running) {
		t.clients.patient.Add(-t.size)
		t.clients.ready(t)
	}
}

func (t *clientRequest) run() {
	for t.next < len(t.items) {
		answered := t.answered.Load()
		if later := t.publishNext(time.Now()); later != nil {
			t.pause(later, answered)
			return
		}
		t.next++
	}
	t.end()
}

// publishNext publishes the next message.
func (t *clientRequest) publishNext(now time.Time) *admission.Later {
	it, p := t.items[t.next], t.clients.publisher
	if t.clients.draining.Load() {
		t.Published(uint64(t.next), refusal(errDraining()))
		return nil
	}
	refused, later := p.offer(now, &Message{
		Context: context.Background(), Producer: client(it), From: from(it), FromClient: true, Origin: identity.Origin(it.GetUser(), it.GetClientId()),
		Patient: now.Before(t.until) && t.clients.patient.Load() < mostPatient, Ref: uint64(t.next), To: t,
		Request: &pushmeshv1.PublishRequest{
			Topic: it.GetTopic(), Payload: it.GetPayload(), Headers: it.GetHeaders(), DedupeKey: it.GetDedupeKey(),
			// No traceparent: a client must not decide what is sampled.
		},
	})
	t.refused = t.refused || refused
	return later
}

// pause makes the request continue later, given how many of its messages had been answered before
// it was refused.
func (t *clientRequest) pause(later *admission.Later, answered int64) {
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

// end sends the reply; where the client goes on sending messages that are refused, late, as the
// calls of a producer are answered (Service.penalty). This delays its connection alone, of which no
// other request is under way.
func (t *clientRequest) end() {
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
