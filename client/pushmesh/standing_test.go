package pushmesh

import (
	"context"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/client/internal/topicfilter"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// logOf is a topic's log as an edge knows it; epoch 0: there is none.
type logOf struct{ epoch, oldest, head uint64 }

// after is where an edge begins for who has a position: behind pos, or with what is retained where
// the position is void.
func (l logOf) after(epoch, seq uint64) (pos uint64, recovered bool) {
	switch {
	case l.epoch == 0:
		return 0, seq == 0
	case epoch != 0 && epoch != l.epoch, seq > l.head, seq+1 < l.oldest:
		return l.oldest - 1, false
	}
	return seq, true
}

func (l logOf) answer(m *wirev1.Subscribe, pos uint64, recovered bool) sent {
	s := &wirev1.Subscribed{Id: m.GetId(), Epoch: l.epoch, Head: l.head, Recovered: recovered}
	if topicfilter.Wild(m.GetFilter()) {
		s = &wirev1.Subscribed{
			Id: m.GetId(), Recovered: recovered,
			Positions: []*wirev1.Subscribed_TopicPosition{{Topic: "room/a", Epoch: l.epoch, Head: l.head, Recovered: recovered}},
		}
	}
	return sent{wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, s}
}

func anyLog() *rapid.Generator[logOf] {
	return rapid.Custom(func(t *rapid.T) logOf {
		epoch := rapid.Uint64Range(0, 3).Draw(t, "epoch")
		if epoch == 0 {
			return logOf{}
		}
		head := rapid.Uint64Range(0, 8).Draw(t, "head")
		return logOf{epoch, rapid.Uint64Range(1, head+1).Draw(t, "oldest"), head}
	})
}

// Whatever position a program has, and whatever became of the log meanwhile: what the edge delivers
// is handed over, and a position that is void is told, once.
func TestAPositionNeverMakesDeaf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, filter := anyLog().Draw(t, "log"), rapid.SampledFrom([]string{"room/a", "room/+"}).Draw(t, "filter")
		epoch, seq := rapid.Uint64Range(0, 3).Draw(t, "had epoch"), rapid.Uint64Range(0, 12).Draw(t, "had")
		option := FromPositions(Position{Topic: "room/a", Epoch: epoch, Seq: seq})
		if !topicfilter.Wild(filter) && rapid.Bool().Draw(t, "one position") {
			option = FromSeq(epoch, seq)
		}
		var mu sync.Mutex
		var want uint64
		gaps, next, wrong, all := 0, uint64(0), false, make(chan struct{})
		pos, recovered := l.after(epoch, seq)
		last := max(l.head, pos) + 2 // two more, live
		e := &scriptEdge{placed: func(m *wirev1.Subscribe) []sent {
			out := []sent{l.answer(m, pos, recovered)}
			if l.epoch == 0 {
				out = append(out, sent{wirev1.FrameType_FRAME_TYPE_PROGRESS, &wirev1.Progress{Topic: "room/a", Epoch: 9, Code: wirev1.Code_CODE_EPOCH_CHANGED, Subs: []uint32{m.GetId()}}})
			}
			for s := pos + 1; s <= last; s++ {
				out = append(out, sent{wirev1.FrameType_FRAME_TYPE_MESSAGE, &wirev1.Message{Topic: "room/a", Seq: s, Subs: []uint32{m.GetId()}}})
			}
			return out
		}}
		s, err := NewSubscriber(SubscriberConfig{Addrs: []string{"edge"}, Dial: e.dial, OnGap: func(Gap) {
			mu.Lock()
			defer mu.Unlock()
			gaps++
		}})
		if err != nil {
			t.Fatal(err)
		}
		next = pos + 1
		_, err = s.Start(filter, func(_ context.Context, d *Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			wrong, next, want = wrong || d.Seq != next, d.Seq+1, want+1
			if d.Seq == last {
				close(all)
			}
			return nil
		}, option)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-all:
		case <-time.After(patience):
			t.Fatalf("deaf: %d of %d to %d were handed over", want, pos+1, last)
		}
		_ = s.Close(context.Background())
		mu.Lock()
		defer mu.Unlock()
		if wrong || want != last-pos {
			t.Fatalf("%d messages were handed over, want each of %d to %d", want, pos+1, last)
		}
		if told := gaps > 0; told == recovered || gaps > 1 {
			t.Fatalf("%d gaps were told, recovered %v", gaps, recovered)
		}
	})
}

// A topic that a subscription with wildcards has met live has no epoch that it knows of. When the
// edge comes back with another log, it hears that one from its first message on, whether the edge
// names the epoch (as edges do) or not.
func TestWildcardsHearANewEpoch(t *testing.T) {
	for _, named := range []bool{true, false} {
		e := newFakeEdge(t)
		gaps := make(chan Gap, 10)
		s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}, OnGap: func(g Gap) { gaps <- g }})
		got := newSeqLog()
		sub := start(t, s, "room/#", got.handle, WithAck())
		c := e.welcome()
		c.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{Id: c.subscribe().GetId(), Recovered: true})
		if named {
			c.progress(&wirev1.Progress{Topic: "room/a", Epoch: 7, Code: wirev1.Code_CODE_EPOCH_CHANGED})
		}
		c.message("room/a", 1, 0)
		c.message("room/a", 2, 0)
		c.ackedThrough("room/a", 2)
		c.close()
		for again := range 2 { // still gone the second time
			c = e.welcome()
			m := c.subscribe()
			want := Position{"room/a", 0, uint64(2 - 2*again)}
			if named && again == 0 {
				want.Epoch = 7
			}
			if p := sub.Positions(); len(p) != 1 || p[0] != want || len(m.GetPositions()) != 1 || m.GetPositions()[0].GetSeq() != want.Seq {
				t.Fatalf("resumed with %v, at %v, want %v", m.GetPositions(), p, want)
			}
			if again == 0 {
				c.sendAll(logOf{}.answer(m, 0, false))
				if g := <-gaps; g.Topic != "room/a" {
					t.Fatal(g)
				}
				c.close()
				continue
			}
			c.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{Id: m.GetId(), Recovered: true})
			if named {
				c.progress(&wirev1.Progress{Topic: "room/a", Epoch: 9, Code: wirev1.Code_CODE_EPOCH_CHANGED, Subs: []uint32{m.GetId()}})
			}
			c.message("room/a", 1, 0, m.GetId())
			c.message("room/a", 2, 0, m.GetId())
		}
		c.ackedThrough("room/a", 2)
		got.wait(t, 1, 2, 1, 2)
		if len(gaps) > 0 {
			t.Fatalf("nothing was lost, and told as %v", <-gaps)
		}
	}
}
