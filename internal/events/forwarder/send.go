package forwarder

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Stop continues to send for drainTime, until nothing is queued; what is queued then is counted as
// DRAINING.
func (q *Forwarder) Stop(ctx context.Context) error {
	if q.group == nil {
		return nil
	}
	q.ending.Store(true)
	q.signal()
	late := time.NewTimer(drainTime)
	defer late.Stop()
	select {
	case <-q.done:
	case <-late.C:
	case <-ctx.Done():
	}
	err := q.group.Stop(ctx)
	if n := q.Waiting(); n > 0 {
		q.count(wirev1.Code_CODE_DRAINING, n)
		q.cfg.Log.Warn("events are lost: they could not be published before the process stopped", "events", n)
	}
	return err
}

func (q *Forwarder) run(ctx context.Context) {
	for {
		if batch := q.nextRequest(); len(batch) > 0 {
			if !q.send(ctx, batch) {
				return
			}
			continue
		}
		if q.ending.Load() {
			close(q.done)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-q.wake:
		}
	}
}

// nextRequest takes what one request carries. Events that were lost since the last request are
// reported after those that had room.
func (q *Forwarder) nextRequest() []*meshv1.EventPublish_Item {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, k := range events.All() {
		if l := &q.lostByKind[k]; l.unreported > 0 {
			told := &pushmeshv1.EventLost{Count: l.unreported, Code: l.why}
			l.unreported = 0
			q.appendEvent(k, k.Topic(), "", &pushmeshv1.Event{At: timestamppb.Now(), Event: &pushmeshv1.Event_LostEvents{LostEvents: told}})
		}
	}
	n, bytes := 0, 0
	for n < len(q.items) && n < itemsInARequest {
		s := size(q.items[n])
		if n > 0 && bytes+s > bytesInARequest {
			break
		}
		n, bytes = n+1, bytes+s
	}
	batch := q.items[:n:n]
	if q.items = q.items[n:]; len(q.items) == 0 {
		q.items = nil
	}
	q.bytes -= bytes
	return batch
}

// countUnsent counts a batch that could not be sent.
func (q *Forwarder) countUnsent(batch []*meshv1.EventPublish_Item) {
	q.count(wirev1.Code_CODE_DRAINING, len(batch))
	q.cfg.Log.Warn("events are lost: they could not be published before the process stopped", "events", len(batch))
}

// send sends a batch until every event of it is published or refused for good. It reports false
// where ctx ended first.
func (q *Forwarder) send(ctx context.Context, batch []*meshv1.EventPublish_Item) bool {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		again, err := q.attempt(ctx, batch)
		if batch = again; len(batch) == 0 {
			return true
		}
		q.cfg.Log.Debug("events wait to be sent again", "events", len(batch), "error", err)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			q.countUnsent(batch)
			return false
		case <-timer.C:
		}
	}
}

// attempt sends a batch once, and returns the part of it to send again, and why.
func (q *Forwarder) attempt(ctx context.Context, batch []*meshv1.EventPublish_Item) (again []*meshv1.EventPublish_Item, why error) {
	reply, err := q.request(ctx, batch)
	if err != nil {
		return batch, err
	}
	for i, r := range reply.GetResults() {
		switch c := r.GetCode(); {
		case c == wirev1.Code_CODE_OK:
			q.count(c, 1)
		case retryable(c):
			again, why = append(again, batch[i]), code.New(c, r.GetError())
		default:
			q.cfg.Log.Error("a router refused an event", "topic", batch[i].GetTopic(), "code", code.Name(c), "error", r.GetError())
			q.mu.Lock()
			q.countLost(kindOf(batch[i]), 1, c)
			q.mu.Unlock()
		}
	}
	return again, why
}

func (q *Forwarder) request(ctx context.Context, batch []*meshv1.EventPublish_Item) (*meshv1.ClientPublishReply, error) {
	subject := q.cfg.Subject()
	if subject == "" {
		return nil, errNoRouter
	}
	data, err := proto.Marshal(&meshv1.EventPublish{Source: q.cfg.Source, Incarnation: q.cfg.Incarnation, Items: batch})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if data, err = q.cfg.Request(ctx, subject, data); err != nil {
		return nil, err
	}
	reply := &meshv1.ClientPublishReply{}
	if err := proto.Unmarshal(data, reply); err != nil {
		return nil, err
	}
	if len(reply.GetResults()) != len(batch) {
		return nil, code.New(wirev1.Code_CODE_INTERNAL, "a router answered with another number of results than events were sent")
	}
	return reply, nil
}
