package pushmesh

import (
	"context"
	"errors"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// A subscription knows where the log stood when it began, waits until all of that was handled, and
// says whether it went on exactly where it was.
func TestWhereLiveBegins(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	hold := make(chan struct{})
	sub := start(t, s, "room/a", func(_ context.Context, d *Delivery) error {
		if d.Seq == 3 {
			<-hold
		}
		return nil
	}, WithAck(), FromEarliest())
	if _, known := sub.Head("room/a"); known {
		t.Error("a head before there was an answer")
	}
	c := e.welcome()
	id := c.subscribed(7, 3, true).GetId()
	if err := sub.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if head, known := sub.Head("room/a"); !known || head != (Position{"room/a", 7, 3}) || !sub.Recovered() {
		t.Errorf("head %v, %v", head, known)
	}
	if _, known := sub.Head("room/b"); known {
		t.Error("a head of another topic")
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	c.message("room/a", 1, 0, id)
	c.progress(&wirev1.Progress{Topic: "room/a", Epoch: 7, From: 2, To: 2, Code: wirev1.Code_CODE_EXPIRED, Subs: []uint32{id}})
	c.message("room/a", 3, 0, id)
	if err := sub.CaughtUp(over); !errors.Is(err, context.Canceled) {
		t.Errorf("caught up before: %v", err)
	}
	close(hold)
	if err := sub.CaughtUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.ackedThrough("room/a", 3)
	c.close()
	c = e.welcome()
	m := c.subscribe()
	c.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{Id: m.GetId(), Epoch: 7, Head: 9, Missed: 2})
	c.message("room/a", 9, 0, id)
	c.ackedThrough("room/a", 9)
	if sub.Recovered() {
		t.Error("nothing was missing")
	}
	if head, _ := sub.Head("room/a"); head.Seq != 9 {
		t.Errorf("head %v", head)
	}
	for _, o := range []Option{WithGroup("g"), WithRankTopK(3)} {
		if err := start(t, s, "room/b", fine, o).CaughtUp(t.Context()); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%v: %v", o, err)
		}
	}
}

// History is what there was, and ends, whatever is published meanwhile.
func TestHistory(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	type read struct {
		seqs []uint64
		errs []error
	}
	history := func(topic string, n uint64) chan read {
		done := make(chan read, 1)
		go func() {
			var r read
			for d, err := range s.History(t.Context(), topic, n) {
				if err != nil {
					r.errs = append(r.errs, err)
					continue
				}
				r.seqs = append(r.seqs, d.Seq)
			}
			done <- r
		}()
		return done
	}
	c := e.welcome()
	for name, x := range map[string]struct {
		head uint64
		send []uint64
		want int
	}{
		"all of it":          {5, []uint64{4, 5}, 2},
		"and what comes":     {5, []uint64{4, 5, 6}, 2},
		"a hole at the end":  {6, []uint64{5, 7}, 1},
		"nothing":            {0, nil, 0},
		"more than there is": {1, []uint64{1}, 1},
	} {
		done := history("room/a", 2)
		m := c.subscribe()
		if m.GetStart() != wirev1.Start_START_LAST_N || m.GetSeq() != 2 {
			t.Fatalf("%s: asked %v", name, m)
		}
		c.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{Id: m.GetId(), Epoch: 7, Head: x.head, Recovered: true})
		for _, seq := range x.send {
			c.message("room/a", seq, 0, m.GetId())
		}
		var u wirev1.Unsubscribe
		c.expect(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &u)
		c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, &wirev1.Unsubscribed{Id: u.GetId()})
		if r := <-done; len(r.seqs) != x.want || len(r.errs) > 0 {
			t.Errorf("%s: %v", name, r)
		}
	}
	if r := <-history("room/#", 2); len(r.errs) != 1 || !errors.As(r.errs[0], new(*ConfigError)) {
		t.Errorf("of a wildcard: %v", r)
	}
	done := history("room/b", 2)
	m := c.subscribe()
	c.send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Ref: m.GetId(), Code: wirev1.Code_CODE_FORBIDDEN})
	if r := <-done; len(r.errs) != 1 || !errors.Is(r.errs[0], ErrForbidden) {
		t.Errorf("refused: %v", r)
	}
}

// What has no log has no history, and that is said.
func TestTheHistoryOfAnEphemeralTopic(t *testing.T) {
	inSubs(t, func(t *testing.T, s *Subscriber, _ *fakeEdge, c *edgeConn) {
		done := failed(func(ctx context.Context) error {
			for d, err := range s.History(ctx, "talk", 2) {
				if err == nil {
					t.Errorf("had %v", d)
				}
				return err
			}
			return nil
		})
		id := c.subscribe().GetId()
		c.sendAll(
			sent{wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{Id: id, Recovered: true}},
			sent{wirev1.FrameType_FRAME_TYPE_MESSAGE, &wirev1.Message{Topic: "talk"}},
		)
		c.expect(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{})
		c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, &wirev1.Unsubscribed{Id: id})
		if err := <-done; !errors.Is(err, ErrUnsupported) {
			t.Errorf("%v", err)
		}
	})
}
