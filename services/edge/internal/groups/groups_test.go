package groups

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// world is a store and a log for some edges that reach each other over a lossy net. Time is fake.
type world struct {
	t     *testing.T
	mu    sync.Mutex
	rand  *rand.Rand
	loss  float64
	edges map[string]*edge

	holder     string
	generation uint64
	until      time.Time
	cursor     *meshv1.SessionCursor
	filters    map[string]bool
	resumed    bool

	log   []*exchange.Message
	acked map[uint64]bool
	first map[uint64]bool

	headless int // joins that are answered without heads
	// positions are not stored, but for a dispatcher's first and last ones
	unstored bool
	// slots of members whose clients do not read, with how many messages they were given
	deaf map[uint32]int
	// nil, or the edges that know of ACKs: what one that lives knows must not come again
	know map[uint64]string
	// cut are edges that the store does not answer, former those of an earlier version.
	cut, former map[string]bool
	told        map[uint32][]wirev1.Code // what members were told of their membership, by slot
}

// edge is what is around the Groups of one.
type edge struct {
	*Groups
	w    *world
	id   string
	gone bool
	want map[exchange.Conn]bool
}

const topicName = "room/1"

func newWorld(t *testing.T, seed uint64, loss float64, edges ...string) *world {
	w := &world{
		t: t, rand: rand.New(rand.NewPCG(seed, 2)), loss: loss, edges: map[string]*edge{}, acked: map[uint64]bool{}, first: map[uint64]bool{}, filters: map[string]bool{}, told: map[uint32][]wirev1.Code{},
	}
	for i, id := range edges {
		e := &edge{w: w, id: id, want: map[exchange.Conn]bool{}}
		e.Groups = New(Config{
			Edge: id, Incarnation: uint64(i+1) * 1e6, Loop: 9, Store: e, Mesh: e, Request: w.request, Durable: func(string) bool { return true },
			MaxAttempts: func(string) uint32 { return 1000 }, Log: slog.New(slog.DiscardHandler),
		})
		if err := e.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.edges[id] = e
	}
	return w
}

func (w *world) stop() {
	for _, e := range w.edges {
		if err := e.work.Stop(context.Background()); err != nil {
			w.t.Error(err)
		}
	}
}

func (w *world) lost() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rand.Float64() < w.loss
}

func (w *world) dead(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.edges[id] == nil || w.edges[id].gone
}

// request loses frames, and answers.
func (w *world) request(ctx context.Context, to string, frame []byte) ([]byte, error) {
	if w.dead(to) || w.lost() {
		<-ctx.Done()
		return nil, errors.New("lost")
	}
	answer := make(chan []byte, 1)
	w.edges[to].Receive(w.asFormer(frame), func(b []byte) error {
		answer <- b
		return nil
	})
	select {
	case b := <-answer:
		if !w.lost() {
			return b, nil
		}
	case <-ctx.Done():
	}
	<-ctx.Done()
	return nil, errors.New("lost")
}

func (e *edge) AttachSession(_ context.Context, req *meshv1.AttachSessionRequest) (*meshv1.AttachSessionResponse, error) {
	w := e.w
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	switch {
	case e.gone, w.cut[e.id]:
		return nil, errors.New("no store")
	case req.GetPeek(), w.holder != "" && w.holder != e.id && now.Before(w.until):
		return &meshv1.AttachSessionResponse{PreviousEdge: w.holder}, nil
	}
	w.generation++
	resp := &meshv1.AttachSessionResponse{Generation: w.generation, Resumed: w.resumed, PreviousEdge: w.holder}
	for f := range w.filters {
		resp.Filters = append(resp.Filters, f)
	}
	if w.cursor != nil {
		resp.Cursors = []*meshv1.SessionCursor{w.cursor}
	}
	w.resumed, w.holder, w.until = true, e.id, now.Add(time.Duration(req.GetLeaseMs())*time.Millisecond)
	return resp, nil
}

func (e *edge) RenewLeases(_ context.Context, req *meshv1.RenewLeasesRequest) *meshv1.RenewLeasesResponse {
	w := e.w
	w.mu.Lock()
	defer w.mu.Unlock()
	c := wirev1.Code_CODE_OK
	switch {
	case e.gone, w.cut[e.id]:
		c = wirev1.Code_CODE_UNAVAILABLE
	case req.GetLeases()[0].GetGeneration() != w.generation:
		c = wirev1.Code_CODE_SESSION_TAKEN_OVER
	default:
		w.until = time.Now().Add(time.Duration(req.GetLeaseMs()) * time.Millisecond)
	}
	return &meshv1.RenewLeasesResponse{Codes: []wirev1.Code{c}}
}

func (e *edge) Hold(exchange.Conn, string, string, uint64) {}

func (e *edge) Join(conn exchange.Conn, sub uint32, _ string, _ bool, _ int) {
	w := e.w
	w.mu.Lock()
	e.want[conn] = true
	if w.headless > 0 {
		w.headless--
		w.mu.Unlock()
		e.Groups.Post(exchange.Joined{Conn: conn, Sub: sub, Err: code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, "no heads")})
		return
	}
	head := exchange.Head{Topic: topicName, Epoch: 1, Head: uint64(len(w.log)), Oldest: 1}
	w.mu.Unlock()
	e.Groups.Post(exchange.Joined{Conn: conn, Sub: sub, Heads: []exchange.Head{head}})
}

func (e *edge) HasMembers(string, bool) {}

func (e *edge) Leave(uint16, string) {
	e.w.mu.Lock()
	defer e.w.mu.Unlock()
	clear(e.want)
}

func (e *edge) Read(_ uint16, name string, _, from, _ uint64, _ int) {
	w := e.w
	w.mu.Lock()
	r := exchange.Range{Topic: name, From: from, Epoch: 1, Head: uint64(len(w.log)), Oldest: 1}
	r.Messages = append(r.Messages, w.log[min(int(from)-1, len(w.log)):]...)
	w.mu.Unlock()
	e.Groups.Post(r)
}

func (e *edge) Save(conn exchange.Conn, ref uint32, s *meshv1.SessionWrite, _ bool) {
	w := e.w
	w.mu.Lock()
	stale := s.GetGeneration() != w.generation || e.gone
	if !stale && (ref > 0 || !w.unstored) {
		for _, c := range s.GetCursors() {
			w.cursor = c
		}
		for _, f := range s.GetAddFilters() {
			w.filters[f] = true
		}
		for _, f := range s.GetRemoveFilters() {
			delete(w.filters, f)
		}
		if s.GetDetach() {
			w.holder = ""
		}
	}
	w.mu.Unlock()
	if stale {
		e.Groups.Post(exchange.Detached{Conn: conn})
	}
	if ref > 0 {
		e.Groups.Post(exchange.Saved{Conn: conn, Ref: ref})
	}
}

// Post is what a loop is told: a member ACKs, but for every seventh message, which it lets time out
// once.
func (e *edge) Post(_ uint16, ev exchange.Event) {
	w := e.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.gone {
		return
	}
	switch ev := ev.(type) {
	case exchange.GroupJoined:
		w.told[ev.Conn.Slot] = append(w.told[ev.Conn.Slot], code.Of(ev.Err))
	case exchange.GroupEnded:
		w.told[ev.Conn.Slot] = append(w.told[ev.Conn.Slot], ev.Code)
	case exchange.Assigned:
		e.assigned(ev)
	}
}

// assigned is Post of messages; mu is held.
func (e *edge) assigned(a exchange.Assigned) {
	w := e.w
	if n, ok := w.deaf[a.Conn.Slot]; ok {
		w.deaf[a.Conn.Slot] = n + len(a.Messages)
		go e.unread(a)
		return
	}
	var all []exchange.GroupSettled
	for i, m := range a.Messages {
		how := meshv1.GroupSettle_HOW_ACKED
		if a.Attempts[i] == 0 {
			if w.first[m.Seq] {
				w.t.Errorf("%d came twice with attempt 0", m.Seq)
			}
			w.first[m.Seq] = true
			if m.Seq%7 == 0 {
				how = meshv1.GroupSettle_HOW_TIMEOUT
			}
		}
		if id, ok := w.know[m.Seq]; ok && !w.edges[id].gone {
			w.t.Errorf("%d came again, which was ACKed at %s", m.Seq, id)
		}
		if w.know != nil && how == meshv1.GroupSettle_HOW_ACKED {
			w.know[m.Seq] = e.id
		}
		if how == meshv1.GroupSettle_HOW_ACKED {
			w.acked[m.Seq] = true
		}
		all = append(all, exchange.GroupSettled{Conn: a.Conn, Sub: a.Sub, Message: m, How: how})
	}
	e.SettleGroup(all)
}

// unread does what a loop does with messages that a client does not read: after ack_timeout they go
// back, and the member is paused.
func (e *edge) unread(a exchange.Assigned) {
	pass(2 * time.Second)
	var all []exchange.GroupSettled
	for _, m := range a.Messages {
		all = append(all, exchange.GroupSettled{Conn: a.Conn, Sub: a.Sub, Message: m, How: meshv1.GroupSettle_HOW_UNSENT})
	}
	e.SettleGroup(all)
	e.PauseGroup(a.Conn, a.Sub)
}

// publish appends n messages, and hands each to the edges that want it, unless that is lost.
func (w *world) publish(n int) {
	for range n {
		lost := w.lost()
		w.mu.Lock()
		body, err := wire.Body(&wirev1.Message{Payload: []byte("x")})
		if err != nil {
			w.t.Fatal(err)
		}
		seq := uint64(len(w.log)) + 1
		m := &exchange.Message{Topic: topicName, Epoch: 1, Seq: seq, Frame: wire.AppendMessage(nil, topicName, seq, body)}
		w.log = append(w.log, m)
		var to []*edge
		for _, e := range w.edges {
			if len(e.want) > 0 && !e.gone && !lost {
				to = append(to, e)
			}
		}
		w.mu.Unlock()
		for _, e := range to {
			e.Groups.Post(exchange.Live{Messages: []*exchange.Message{m}})
		}
		pass(time.Millisecond)
	}
}

func (w *world) join(edge string, slot uint32) { w.joinKey(edge, slot, "") }

func (w *world) joinKey(edge string, slot uint32, key string) {
	w.edges[edge].JoinGroup(exchange.Conn{Slot: slot}, 1, &exchange.GroupJoin{
		Group: "g", Filter: topicName, Key: key, Window: 5, Start: exchange.GroupStart{Mode: wirev1.Start_START_EARLIEST},
	})
}

// await lets fake time pass until everything is ACKed.
func (w *world) await(most time.Duration) time.Duration {
	w.t.Helper()
	began := time.Now()
	for {
		w.mu.Lock()
		missing := len(w.log) - len(w.acked)
		w.mu.Unlock()
		if missing == 0 {
			return time.Since(began)
		}
		if time.Since(began) > most {
			w.t.Fatalf("%d of %d messages are not ACKed after %v", missing, len(w.log), most)
		}
		pass(10 * time.Millisecond)
	}
}

func TestNothingIsMissingOnALossyNet(t *testing.T) {
	for seed := range uint64(30) {
		loss := float64(seed%4) / 10
		t.Run(fmt.Sprint("seed ", seed, " loss ", loss), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, seed, loss, "a", "b", "c")
				defer w.stop()
				for i, id := range []string{"a", "b", "c", "a", "b"} {
					w.join(id, uint32(i))
				}
				w.publish(500)
				w.mu.Lock()
				w.loss = 0
				w.mu.Unlock()
				w.publish(1) // shows what was lost live
				w.mu.Lock()
				w.loss = min(loss, 0.1)
				w.mu.Unlock()
				w.await(time.Minute)
			})
		})
	}
}

func TestADeadDispatcherIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, 0, "a", "b", "c")
		defer w.stop()
		for i, id := range []string{"a", "b", "c", "a", "b", "c"} {
			w.join(id, uint32(i))
		}
		w.publish(300)
		w.await(10 * time.Second)
		for range 2 {
			w.mu.Lock()
			w.edges[w.holder].gone = true
			w.mu.Unlock()
			w.publish(10)
			if took := w.await(10 * time.Second); took > 5*time.Second {
				t.Errorf("replaced after %v", took)
			}
		}
	})
}

// What members ACKed doesn't come again though the dispatcher died before it had stored any of it:
// the members' edges know. What the dead edge's own members ACKed, nobody does.
func TestADeadDispatcherTakesNoACKsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, 0, "a", "b", "c")
		defer w.stop()
		for i, id := range []string{"a", "b", "c"} {
			w.join(id, uint32(i))
		}
		pass(time.Second)
		w.mu.Lock()
		w.unstored, w.know = true, map[uint64]string{}
		w.mu.Unlock()
		w.publish(300)
		w.await(10 * time.Second)
		for range 2 {
			w.mu.Lock()
			w.edges[w.holder].gone = true
			of := map[string]int{}
			for _, id := range w.know {
				of[id]++
			}
			if len(of) != 3 && w.generation == 1 || w.cursor.GetFloor() != 0 {
				t.Errorf("ACKed by edges %v, stored %v", of, w.cursor)
			}
			w.mu.Unlock()
			w.publish(1)
			w.await(10 * time.Second)
			pass(10 * time.Second)
		}
	})
}

// A dispatcher that can't know where the logs are asks again, and keeps its lease.
func TestHeadsThatCanNotBeHadAreAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, 0, "a", "b")
		defer w.stop()
		w.headless = 10
		w.join("a", 1)
		w.publish(20)
		if took := w.await(10 * time.Second); took < 2*time.Second || took > 4*time.Second {
			t.Errorf("begun after %v", took)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.headless != 0 || w.generation != 1 || w.edges["a"].Stats.Lost.Load() != 0 {
			t.Errorf("%d joins left, generation %d", w.headless, w.generation)
		}
	})
}

func TestAPlannedHandover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, 0, "a", "b")
		defer w.stop()
		w.join("a", 1)
		pass(time.Second)
		w.join("b", 2)
		w.publish(50)
		w.await(time.Second)
		w.edges["a"].Drain(t.Context())
		w.publish(50)
		if took := w.await(5 * time.Second); took > 2*time.Second {
			t.Errorf("handed over in %v", took)
		}
		if again := w.edges["b"].Stats.Redelivered.Load(); again > 50/7+1 { // what timed out
			t.Errorf("%d messages were assigned again", again)
		}
	})
}

// A group without members ends its dispatcher, and goes on where it was.
func TestAGroupWithoutMembersRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, 0, "a", "b")
		defer w.stop()
		w.join("a", 1)
		pass(time.Second)
		w.publish(20)
		w.await(time.Second)
		w.edges["a"].LeaveGroup(exchange.Conn{Slot: 1}, 1)
		pass(2 * emptyFor)
		w.mu.Lock()
		if w.holder != "" || w.filters[heldMark] || w.cursor.GetFloor() != 20 {
			t.Errorf("held by %q, %v, %v", w.holder, w.filters, w.cursor)
		}
		w.mu.Unlock()
		w.publish(20)
		w.join("b", 1)
		w.await(5 * time.Second)
	})
}

// Members that do not read are given a window's worth once, which others get after ack_timeout;
// once they read they have their part again.
func TestMembersThatDoNotReadAreGivenNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, 0, "a", "b")
		defer w.stop()
		w.deaf = map[uint32]int{1: 0, 2: 0}
		for i, id := range []string{"b", "a", "b"} {
			w.join(id, uint32(i))
		}
		pass(time.Second)
		w.publish(200)
		w.await(5 * time.Second)
		pass(10 * time.Second)
		w.publish(200)
		w.await(time.Second)
		w.mu.Lock()
		if w.deaf[1] == 0 || w.deaf[1] > 10 || w.deaf[2] == 0 || w.deaf[2] > 10 {
			t.Errorf("those that do not read were given %v messages", w.deaf)
		}
		clear(w.deaf)
		w.mu.Unlock()
		w.edges["a"].ResumeGroup(exchange.Conn{Slot: 1}, 1)
		w.edges["b"].LeaveGroup(exchange.Conn{Slot: 0}, 1)
		w.publish(20)
		w.await(5 * time.Second)
	})
}

func FuzzReceive(f *testing.F) {
	f.Add([]byte{10, 1, 'b', 42, 0})
	f.Fuzz(func(t *testing.T, frame []byte) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1, 0, "a")
			defer w.stop()
			w.join("a", 1)
			w.edges["a"].Receive(frame, func([]byte) error { return nil })
			synctest.Wait()
		})
	})
}

// pass lets fake time go by.
func pass(d time.Duration) { <-time.After(d) }
