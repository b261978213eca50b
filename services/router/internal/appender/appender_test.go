package appender

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// shared is the log that two fake stores append to; who owns all shards is what truth says, and
// what the map says may lag.
type shared struct {
	mu      sync.Mutex
	topics  map[string][]uint64             // refs of the test in log order
	keys    map[string]*meshv1.AppendResult // the first one's
	truth   string
	mapped  string // "": nobody
	changed chan struct{}
	asked   chan struct{} // one in it: Refresh was called
	silent  string        // a store that answers nothing
	stores  map[string]*store
}

func newShared(names ...string) *shared {
	w := &shared{topics: map[string][]uint64{}, keys: map[string]*meshv1.AppendResult{}, changed: make(chan struct{}), asked: make(chan struct{}, 1), stores: map[string]*store{}}
	for _, n := range names {
		w.stores[n] = &store{w: w, name: n}
	}
	w.truth, w.mapped = names[0], names[0]
	return w
}

func (w *shared) Owner(int) (string, meshv1.StoreServiceClient, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mapped == "" {
		return "", nil, code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, "no owner")
	}
	if w.mapped == w.silent {
		return "", nil, code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, "the owner is silent")
	}
	return w.mapped, w.stores[w.mapped], nil
}

func (w *shared) Changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed
}

func (w *shared) Refresh() {
	select {
	case w.asked <- struct{}{}:
	default:
	}
}

func (w *shared) Silent(addr string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return addr == w.silent
}

func (w *shared) setSilent(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent = name
}

func (w *shared) setMap(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mapped = name
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *shared) setTruth(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.truth = name
}

// store is a stub whose streams end when it says so.
type store struct {
	meshv1.StoreServiceClient
	w    *shared
	name string

	mu      sync.Mutex
	hang    bool                            // takes items and never answers
	fault   func(*meshv1.AppendItem) string // "": none, "before", "after": the stream breaks then
	streams int
	open    error
}

func (s *store) set(f func(*store)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

func (s *store) Append(ctx context.Context, _ ...grpc.CallOption) (grpc.BidiStreamingClient[meshv1.AppendRequest, meshv1.AppendResponse], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams++
	if s.open != nil {
		return nil, s.open
	}
	ctx, cancel := context.WithCancel(ctx)
	return &call{s: s, ctx: ctx, cancel: cancel, answers: make(chan *meshv1.AppendResponse, 1<<16)}, nil
}

type call struct {
	grpc.BidiStreamingClient[meshv1.AppendRequest, meshv1.AppendResponse]
	s       *store
	ctx     context.Context
	cancel  context.CancelFunc
	answers chan *meshv1.AppendResponse
}

func (c *call) Send(req *meshv1.AppendRequest) error {
	if c.ctx.Err() != nil {
		return c.ctx.Err()
	}
	resp := &meshv1.AppendResponse{}
	for _, it := range req.GetItems() {
		c.s.mu.Lock()
		hang, fault := c.s.hang, ""
		if c.s.fault != nil {
			fault = c.s.fault(it)
		}
		c.s.mu.Unlock()
		if hang {
			return nil
		}
		if fault == "before" {
			c.cancel()
			return errors.New("broken before")
		}
		res := c.s.w.append(c.s.name, it)
		if fault == "after" {
			c.cancel()
			return errors.New("broken after")
		}
		resp.Results = append(resp.Results, res)
	}
	c.answers <- resp
	return nil
}

func (c *call) Recv() (*meshv1.AppendResponse, error) {
	select { // what is answered comes before the end
	case resp := <-c.answers:
		return resp, nil
	default:
	}
	select {
	case resp := <-c.answers:
		return resp, nil
	case <-c.ctx.Done():
		return nil, c.ctx.Err()
	}
}

func (w *shared) append(by string, it *meshv1.AppendItem) *meshv1.AppendResult {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.truth != by {
		return &meshv1.AppendResult{Ref: it.GetRef(), Code: wirev1.Code_CODE_CONFLICT}
	}
	if first := w.keys[it.GetDedupeKey()]; first != nil {
		return &meshv1.AppendResult{Ref: it.GetRef(), Seq: first.GetSeq(), MessageId: first.GetMessageId(), Duplicate: true}
	}
	w.topics[it.GetTopic()] = append(w.topics[it.GetTopic()], it.GetPublishedAt())
	res := &meshv1.AppendResult{Ref: it.GetRef(), Seq: uint64(len(w.topics[it.GetTopic()])), MessageId: it.GetMessageId()}
	if k := it.GetDedupeKey(); k != "" {
		w.keys[k] = res
	}
	return res
}

// sink is one item's result. PublishedAt carries its number.
type sink struct {
	it      *Item
	done    chan struct{}
	res     *meshv1.AppendResult
	unknown bool
	order   *results
}

// results are those of one topic in the order in which sinks heard them.
type results struct {
	mu   sync.Mutex
	seqs []uint64
}

func (s *sink) Appended(res *meshv1.AppendResult, unknown bool) {
	s.res, s.unknown = res, unknown
	if s.order != nil && res.GetCode() == wirev1.Code_CODE_OK && !res.GetDuplicate() && !s.it.retried {
		s.order.mu.Lock()
		s.order.seqs = append(s.order.seqs, res.GetSeq())
		s.order.mu.Unlock()
	}
	close(s.done) // panics when heard twice
}

func submit(t *testing.T, a *Appender, topic, key string, number uint64, order *results) *sink {
	t.Helper()
	s := &sink{done: make(chan struct{}), order: order}
	s.it = &Item{Req: &meshv1.AppendItem{Topic: topic, DedupeKey: key, PublishedAt: number, MessageId: fmt.Appendf(nil, "%s-%d", topic, number), Body: []byte("x")}, Sink: s}
	if err := a.Submit(s.it); err != nil {
		e := code.From(err)
		s.res = &meshv1.AppendResult{Code: e.Code, RetryAfterMs: uint32(e.RetryAfter.Milliseconds())}
		close(s.done)
	}
	return s
}

func (s *sink) wait(t *testing.T) *meshv1.AppendResult {
	t.Helper()
	select {
	case <-s.done:
		return s.res
	case <-time.After(patience):
		t.Fatalf("no result for %v", s.it.Req)
		return nil
	}
}

// patience bounds every wait of these tests; nothing comes near it.
const patience = time.Minute

func start(t *testing.T, cfg Config) *Appender {
	t.Helper()
	if cfg.Timeout == 0 { // a machine that stands still is no store that hangs
		cfg.Timeout = patience
	}
	a := New(cfg)
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := a.Stop(ctx); err != nil {
			t.Error(err)
		}
		if n := a.InFlight(); n != 0 {
			t.Errorf("%d items are left", n)
		}
	})
	return a
}

// An item says for how long its number's outcome is unknown when it is sent, the time that it
// waited here included.
func TestNumbersSayForHowLongTheyAreUnknown(t *testing.T) {
	s := newStream(New(Config{Owners: newShared("a")}), "a", nil)
	now := time.Now()
	for _, since := range []time.Time{{}, now, now.Add(-1500 * time.Millisecond), now.Add(-time.Hour).Round(0)} {
		s.push(&Item{Req: &meshv1.AppendItem{SentMsAgo: 7}, Since: since})
	}
	req := &meshv1.AppendRequest{}
	s.take(req)
	for i, want := range []uint64{0, 0, 1500, 3_600_000} {
		if got := req.GetItems()[i].GetSentMsAgo(); got < want || got > want+uint64(patience.Milliseconds()) || want == 0 && got != 0 && got < 1000 {
			t.Errorf("item %d: %d ms, want %d", i, got, want)
		}
	}
}

func TestItemsOfATopicKeepTheirOrder(t *testing.T) {
	w := newShared("a")
	a := start(t, Config{Owners: w})
	var sinks []*sink
	order := &results{}
	for i := range uint64(5000) {
		sinks = append(sinks, submit(t, a, "x", "", i+1, order))
	}
	for i, s := range sinks {
		if res := s.wait(t); res.GetCode() != wirev1.Code_CODE_OK || res.GetSeq() != uint64(i+1) {
			t.Fatalf("item %d: %v", i, res)
		}
	}
	for i, seq := range order.seqs {
		if seq != uint64(i+1) {
			t.Fatalf("result %d is of seq %d", i, seq)
		}
	}
}

// The bubble's clock stands still while items are submitted.
func TestBeyondTheBoundIsOverloaded(t *testing.T) { synctest.Test(t, beyondTheBound) }

func beyondTheBound(t *testing.T) {
	w := newShared("a")
	w.stores["a"].hang = true
	a := start(t, Config{Owners: w, MaxItems: 10, Timeout: 100 * time.Millisecond})
	var sinks []*sink
	for i := range uint64(15) {
		sinks = append(sinks, submit(t, a, "x", "", i+1, nil))
	}
	for i, s := range sinks {
		want := wirev1.Code_CODE_UNAVAILABLE // the stream that hangs is broken in the end
		if i >= 10 {
			want = wirev1.Code_CODE_OVERLOADED
		}
		if res := s.wait(t); res.GetCode() != want || res.GetRetryAfterMs() == 0 || s.unknown != (i < 10) {
			t.Fatalf("item %d: %v, unknown %v", i, res, s.unknown)
		}
	}
	b := start(t, Config{Owners: w, MaxBytes: 2000, Timeout: 100 * time.Millisecond})
	for i := range uint64(3) {
		submit(t, b, "x", "", i+1, nil)
	}
	if res := submit(t, b, "x", "", 4, nil).wait(t); res.GetCode() != wirev1.Code_CODE_OVERLOADED {
		t.Errorf("bytes: %v", res)
	}
}

func TestWithoutOwnerItIsRefusedAtOnce(t *testing.T) {
	w := newShared("a")
	w.setMap("")
	a := start(t, Config{Owners: w})
	if res := submit(t, a, "x", "", 1, nil).wait(t); res.GetCode() != wirev1.Code_CODE_UNAVAILABLE {
		t.Errorf("got %v", res)
	}
}

func TestAStoreThatCantBeReachedIsRefusedRetryable(t *testing.T) {
	w := newShared("a")
	w.stores["a"].open = code.New(wirev1.Code_CODE_UNAVAILABLE, "connection refused")
	a := start(t, Config{Owners: w})
	s := submit(t, a, "x", "", 1, nil)
	if res := s.wait(t); res.GetCode() != wirev1.Code_CODE_UNAVAILABLE || res.GetRetryAfterMs() == 0 || s.unknown {
		t.Errorf("got %v, unknown %v: nothing was sent", res, s.unknown)
	}
	select {
	case <-w.asked: // after the answer, perhaps
	case <-time.After(patience):
		t.Error("nobody asked for the owners again")
	}
}

func TestUnknownOutcome(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		w := newShared("a")
		a := start(t, Config{Owners: w})
		w.stores["a"].set(func(s *store) {
			s.fault = func(*meshv1.AppendItem) string {
				s.fault = nil
				return when
			}
		})
		plain := submit(t, a, "x", "", 1, nil)
		if res := plain.wait(t); res.GetCode() != wirev1.Code_CODE_UNAVAILABLE || !plain.unknown {
			t.Errorf("%s, no key: %v, unknown %v", when, res, plain.unknown)
		}
		w.stores["a"].set(func(s *store) {
			s.fault = func(*meshv1.AppendItem) string {
				s.fault = nil
				return when
			}
		})
		keyed := submit(t, a, "y", "k", 2, nil)
		if res := keyed.wait(t); res.GetCode() != wirev1.Code_CODE_OK || res.GetSeq() != 1 || res.GetDuplicate() {
			t.Errorf("%s, key: %v", when, res) // what this item itself did is no duplicate
		}
		if res := submit(t, a, "y", "k", 3, nil).wait(t); res.GetSeq() != 1 || !res.GetDuplicate() {
			t.Errorf("%s, the key again: %v", when, res)
		}
	}
}

func TestOnlyOneRetryAfterAnUnknownOutcome(t *testing.T) {
	w := newShared("a")
	a := start(t, Config{Owners: w})
	w.stores["a"].set(func(s *store) { s.fault = func(*meshv1.AppendItem) string { return "after" } })
	s := submit(t, a, "x", "k", 1, nil)
	if res := s.wait(t); res.GetCode() != wirev1.Code_CODE_UNAVAILABLE || !s.unknown {
		t.Errorf("%v, unknown %v", res, s.unknown)
	}
	if n := w.stores["a"].streams; n != 2 {
		t.Errorf("%d streams", n)
	}
}

func TestAConflictWaitsForTheMapAndKeepsTheOrder(t *testing.T) {
	w := newShared("a", "b")
	a := start(t, Config{Owners: w, MoveWait: patience})
	if res := submit(t, a, "x", "", 1, nil).wait(t); res.GetSeq() != 1 {
		t.Fatal(res)
	}
	w.setTruth("b")
	var sinks []*sink
	for i := range uint64(100) {
		sinks = append(sinks, submit(t, a, "x", "", i+2, nil))
	}
	w.setMap("b")
	for i, s := range sinks {
		if res := s.wait(t); res.GetCode() != wirev1.Code_CODE_OK || res.GetSeq() != uint64(i+2) {
			t.Fatalf("item %d: %v", i, res)
		}
	}
	for i, number := range w.topics["x"] {
		if number != uint64(i+1) {
			t.Fatalf("log: place %d has %d", i, number)
		}
	}
}

func TestAMapThatStaysWrongIsGivenUp(t *testing.T) {
	w := newShared("a", "b")
	w.setTruth("b")
	a := start(t, Config{Owners: w, MoveWait: 50 * time.Millisecond})
	s := submit(t, a, "x", "", 1, nil)
	if res := s.wait(t); res.GetCode() != wirev1.Code_CODE_UNAVAILABLE || s.unknown {
		t.Errorf("%v, unknown %v", res, s.unknown)
	}
	w.setMap("b")
	if res := submit(t, a, "x", "", 2, nil).wait(t); res.GetCode() != wirev1.Code_CODE_OK {
		t.Errorf("after the map: %v", res)
	}
}

func TestAnOwnerThatHangsDoesNotHoldUpItsSuccessor(t *testing.T) {
	w := newShared("a", "b")
	w.stores["a"].hang = true
	a := start(t, Config{Owners: w, Timeout: time.Hour, MoveWait: 50 * time.Millisecond})
	keyed, plain := submit(t, a, "x", "k", 1, nil), submit(t, a, "x", "", 2, nil)
	bothSent(t, a)
	w.setTruth("b")
	w.setMap("b")
	later := submit(t, a, "x", "", 3, nil)
	if res := plain.wait(t); res.GetCode() != wirev1.Code_CODE_UNAVAILABLE || !plain.unknown {
		t.Errorf("no key: %v", res)
	}
	if k, l := keyed.wait(t), later.wait(t); k.GetSeq() != 1 || l.GetSeq() != 2 {
		t.Errorf("key: %v, later: %v", k, l)
	}
}

// A store that answers nothing, and that nobody succeeds, is waited for no longer than it takes to
// know; then what is published is refused at once, until it answers again.
func TestASilentOwnerIsRefusedFor(t *testing.T) {
	w := newShared("a")
	w.stores["a"].set(func(s *store) { s.hang = true })
	a := start(t, Config{Owners: w, Timeout: time.Hour, MoveWait: 50 * time.Millisecond})
	keyed, plain := submit(t, a, "x", "k", 1, nil), submit(t, a, "x", "", 2, nil)
	bothSent(t, a)
	w.setSilent("a")
	for name, s := range map[string]*sink{"key": keyed, "no key": plain} {
		if res := s.wait(t); res.GetCode() != wirev1.Code_CODE_UNAVAILABLE || res.GetRetryAfterMs() == 0 || !s.unknown {
			t.Errorf("%s: %v, unknown %v", name, res, s.unknown)
		}
	}
	err := a.Submit(&Item{Req: &meshv1.AppendItem{Topic: "x"}})
	if e := code.From(err); e == nil || e.Code != wirev1.Code_CODE_UNAVAILABLE || e.RetryAfter == 0 {
		t.Errorf("known to be silent: %v", err)
	}
	w.stores["a"].set(func(s *store) { s.hang = false })
	w.setSilent("")
	if res := submit(t, a, "x", "k", 3, nil).wait(t); res.GetCode() != wirev1.Code_CODE_OK {
		t.Errorf("it answers again: %v", res)
	}
}

// bothSent waits until two items are on their way to store "a".
func bothSent(t *testing.T, a *Appender) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; <-time.After(time.Millisecond) {
		a.mu.Lock()
		s := a.streams["a"]
		a.mu.Unlock()
		s.mu.Lock()
		n := len(s.sent)
		s.mu.Unlock()
		if n == 2 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d are sent", n)
		}
	}
}

// Owners move, maps lag and streams break at random: every item is answered once, the log keeps the
// order in which items of a topic were submitted, results come in the log's order, and what a key
// protects is there once.
func TestOrderSurvivesEverything(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			w := newShared("a", "b")
			for _, st := range w.stores {
				faults := rand.New(rand.NewPCG(seed, 2))
				st.fault = func(*meshv1.AppendItem) string {
					switch faults.IntN(150) {
					case 0:
						return "before"
					case 1:
						return "after"
					}
					return ""
				}
			}
			a := start(t, Config{Owners: w, MoveWait: 100 * time.Millisecond})
			topics := []string{"x", "y", "z", sameShard("x")}
			order := map[string]*results{}
			for _, name := range topics {
				order[name] = &results{}
			}
			var sinks []*sink
			names := []string{"a", "b"}
			for i := range uint64(4000) {
				switch r.IntN(120) {
				case 0:
					w.setTruth(names[r.IntN(2)])
				case 1, 2:
					w.mu.Lock()
					truth := w.truth
					w.mu.Unlock()
					w.setMap(truth)
				case 3:
					if len(sinks) > 0 {
						sinks[r.IntN(len(sinks))].wait(t)
					}
				}
				key := ""
				if r.IntN(2) == 0 {
					key = fmt.Sprint("k", i)
				}
				name := topics[r.IntN(len(topics))]
				sinks = append(sinks, submit(t, a, name, key, i+1, order[name]))
			}
			ok := 0
			for _, s := range sinks {
				if s.wait(t).GetCode() == wirev1.Code_CODE_OK {
					ok++
				}
			}
			verify(t, w, sinks, order)
			t.Logf("%d of %d were taken", ok, len(sinks))
		})
	}
}

func verify(t *testing.T, w *shared, sinks []*sink, order map[string]*results) {
	t.Helper()
	// an item sent again may stand behind one that was sent after its first try
	retried := map[uint64]bool{}
	for _, s := range sinks {
		retried[s.it.Req.GetPublishedAt()] = s.it.retried
	}
	for name, numbers := range w.topics {
		seen := map[uint64]bool{}
		var last uint64
		for _, n := range numbers {
			if seen[n] {
				t.Fatalf("%s: %d is there twice", name, n)
			}
			seen[n] = true
			if n < last && !retried[n] {
				t.Fatalf("%s: %d stands behind %d", name, n, last)
			}
			last = max(last, n)
		}
	}
	for name, res := range order {
		for i := 1; i < len(res.seqs); i++ {
			if res.seqs[i] < res.seqs[i-1] {
				t.Fatalf("%s: result of seq %d after %d", name, res.seqs[i], res.seqs[i-1])
			}
		}
	}
}

// sameShard finds another topic of name's shard.
func sameShard(name string) string {
	for i := 0; ; i++ {
		if other := fmt.Sprint(name, i); topic.Shard(other) == topic.Shard(name) {
			return other
		}
	}
}
