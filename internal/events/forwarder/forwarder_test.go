package forwarder

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// router answers requests as a test says.
type router struct {
	mu       sync.Mutex
	away     bool
	requests int
	answer   func(it *meshv1.EventPublish_Item) wirev1.Code
	got      []*pushmeshv1.Event
	topics   []string
}

func (r *router) request(_ context.Context, subject string, data []byte) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests++
	if subject != "r1" || r.away {
		return nil, errors.New("no answer")
	}
	in, reply := &meshv1.EventPublish{}, &meshv1.ClientPublishReply{}
	if err := proto.Unmarshal(data, in); err != nil {
		return nil, err
	}
	for _, it := range in.GetItems() {
		c := wirev1.Code_CODE_OK
		if r.answer != nil {
			c = r.answer(it)
		}
		reply.Results = append(reply.Results, &meshv1.ClientPublishReply_Result{Code: c})
		e := &pushmeshv1.Event{}
		if err := proto.Unmarshal(it.GetEvent(), e); err != nil || e.GetNumber() != it.GetNumber() || e.GetSource() != in.GetSource() || e.GetIncarnation() != in.GetIncarnation() {
			return nil, fmt.Errorf("item %v: %w", it, err)
		}
		if c == wirev1.Code_CODE_OK {
			r.got, r.topics = append(r.got, e), append(r.topics, it.GetTopic())
		}
	}
	return proto.Marshal(reply)
}

func (r *router) set(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func start(t *testing.T, r *router, items int) *Forwarder {
	q := New(Config{Source: "e1", Incarnation: 5, Request: r.request, Subject: func() string { return "r1" }, Items: items, Log: slog.New(slog.DiscardHandler)})
	if err := q.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return q
}

func connect(q *Forwarder, n int) {
	q.Put(events.Connect, events.Connect.Topic(), "", &pushmeshv1.Event{At: timestamppb.Now(), Event: &pushmeshv1.Event_Connect{Connect: &pushmeshv1.EventConnect{
		Connection: &pushmeshv1.EventConnection{ConnectionId: uint64(n)},
	}}})
}

func TestEventsAreSentInOrderAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &router{away: true}
		q := start(t, r, 0)
		for n := range 1200 { // three requests
			connect(q, n)
		}
		<-time.After(10 * time.Second)
		synctest.Wait()
		r.set(func() {
			if r.requests < 5 || r.requests > 20 || len(r.got) > 0 {
				t.Errorf("%d requests without an answer, %d events came", r.requests, len(r.got))
			}
			r.away = false
			refused := map[uint64]bool{}
			r.answer = func(it *meshv1.EventPublish_Item) wirev1.Code {
				// the first one of a batch once
				if it.GetNumber()%512 == 1 && !refused[it.GetNumber()] {
					refused[it.GetNumber()] = true
					return wirev1.Code_CODE_OVERLOADED
				}
				return wirev1.Code_CODE_OK
			}
		})
		<-time.After(10 * time.Second)
		synctest.Wait()
		seen := map[uint64]int{}
		last := uint64(0)
		for _, e := range r.got {
			seen[e.GetNumber()]++
			if e.GetNumber()%512 != 1 && e.GetNumber() < last {
				t.Fatalf("%d after %d", e.GetNumber(), last)
			} else if e.GetNumber()%512 != 1 {
				last = e.GetNumber()
			}
		}
		if len(seen) != 1200 || len(r.got) != 1200 || q.Counts()[wirev1.Code_CODE_OK] != 1200 || q.Waiting() != 0 {
			t.Errorf("%d events, %d different, counts %v, %d wait", len(r.got), len(seen), q.Counts(), q.Waiting())
		}
		if err := q.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestLossIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &router{away: true}
		q := start(t, r, 10)
		connect(q, 0)
		synctest.Wait() // it is under way
		for n := range 14 {
			connect(q, n+1)
		}
		q.Lost(events.Disconnect, 7)
		r.set(func() { r.away = false })
		<-time.After(10 * time.Second)
		connect(q, 99)
		synctest.Wait()
		var lost []string
		for i, e := range r.got {
			if l := e.GetLostEvents(); l != nil {
				lost = append(lost, fmt.Sprint(r.topics[i], " ", l.GetCount(), " ", l.GetCode(), " ", e.GetLost()))
			}
		}
		if want := "[$events/connect 4 CODE_QUEUE_FULL 4 $events/disconnect 7 CODE_QUEUE_FULL 7]"; fmt.Sprint(lost) != want {
			t.Errorf("told %v, want %s", lost, want)
		}
		if last := r.got[len(r.got)-1]; last.GetConnect().GetConnection().GetConnectionId() != 99 || last.GetLost() != 4 || len(r.got) != 14 {
			t.Errorf("%d events, the last one %v", len(r.got), last)
		}
		if got := q.Counts(); got[wirev1.Code_CODE_QUEUE_FULL] != 11 || got[wirev1.Code_CODE_OK] != 14 {
			t.Errorf("counts %v", got)
		}
		if err := q.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestWhatIsRefusedForGoodIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &router{answer: func(it *meshv1.EventPublish_Item) wirev1.Code {
			if it.GetNumber() == 1 {
				return wirev1.Code_CODE_PAYLOAD_TOO_LARGE
			}
			return wirev1.Code_CODE_OK
		}}
		q := start(t, r, 0)
		connect(q, 1)
		synctest.Wait()
		if len(r.got) != 1 || r.got[0].GetLostEvents().GetCode() != wirev1.Code_CODE_PAYLOAD_TOO_LARGE || r.topics[0] != "$events/connect" {
			t.Errorf("got %v", r.got)
		}
		if err := q.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestStopSendsWhatWaitsForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &router{}
		q := start(t, r, 0)
		for n := range 3000 {
			connect(q, n)
		}
		if err := q.Stop(t.Context()); err != nil || len(r.got) != 3000 {
			t.Errorf("%d events came: %v", len(r.got), err)
		}
		r = &router{away: true}
		q = start(t, r, 0)
		for n := range 3000 {
			connect(q, n)
		}
		began := time.Now()
		if err := q.Stop(t.Context()); err != nil || time.Since(began) != drainTime || q.Counts()[wirev1.Code_CODE_DRAINING] != 3000 {
			t.Errorf("took %v, counts %v: %v", time.Since(began), q.Counts(), err)
		}
	})
}
