package handshake

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/leaks"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

func TestHandsAreShaken(t *testing.T) {
	w := start(t, Config{}, nil)
	for range 3 {
		result, err := w.begin("localhost").finish()
		if err != nil || result.Conn == nil {
			t.Fatalf("%+v, the client was told %v", result, err)
		}
	}
	if s := w.Stats(); s.Full != 3 || s.UnderWay != 0 {
		t.Fatalf("%+v", s)
	}
}

// As many as there may be under way wait for their clients: who comes then is refused, and taken
// once one has ended.
func TestHandshakesAreBounded(t *testing.T) {
	const most = 3
	w := start(t, Config{Most: most}, nil)
	var all []*shaking
	for range most {
		s := w.begin("localhost")
		s.answered()
		all = append(all, s)
	}
	for n := range uint64(5) {
		if s := w.begin("localhost"); s.Handshake != nil {
			t.Fatal("one more has begun")
		}
		if s := w.Stats(); s.UnderWay != most || s.Refused != n+1 {
			t.Fatalf("%+v", s)
		}
	}
	all[0].End()
	w.eventually("there is a place", func(s Stats) bool { return s.UnderWay == most-1 })
	if result, err := w.begin("localhost").finish(); err != nil || result.Conn == nil {
		t.Fatalf("%+v, the client was told %v", result, err)
	}
}

// Who has let its handshake wait for longest gives way, and is told why; the one behind it does
// not.
func TestTheOneThatWaitsLongestGivesWay(t *testing.T) {
	w := start(t, Config{Most: 2, Patience: time.Nanosecond}, nil)
	first := w.begin("localhost")
	first.answered()
	w.eventually("the first waits", func(Stats) bool { return w.isWaiting(first.Handshake) })
	second := w.begin("localhost")
	second.answered()
	w.eventually("the second waits", func(Stats) bool { return w.isWaiting(second.Handshake) })
	if s := w.begin("localhost"); s.Handshake == nil {
		t.Fatal("refused")
	}
	<-w.signal(first.slot)
	if _, result := first.Take(); result == nil || result.Code != wirev1.Code_CODE_OVERLOADED {
		t.Fatalf("the first ended with %+v", result)
	}
	if _, result := second.Take(); result != nil {
		t.Fatalf("the second ended with %+v", result)
	}
	if s := w.Stats(); s.GaveWay != 1 || s.Refused != 0 || s.UnderWay != 2 {
		t.Fatalf("%+v", s)
	}
}

// isWaiting reports whether h waits for its client.
func (w *world) isWaiting(h *Handshake) bool {
	w.Pool.mu.Lock()
	defer w.Pool.mu.Unlock()
	return h.silent != nil
}

// Where all places are taken, an address with many gives way to those that have fewer, one for one,
// and to nobody once each has as many.
func TestAnAddressWithManyGivesWay(t *testing.T) {
	const most = 6
	w := start(t, Config{Most: most}, nil)
	var flood []*shaking
	for range most {
		s := w.beginFrom("192.0.2.1", "localhost")
		s.answered()
		w.eventually("it waits", func(Stats) bool { return w.isWaiting(s.Handshake) })
		flood = append(flood, s)
	}
	if s := w.beginFrom("192.0.2.1", "localhost"); s.Handshake != nil {
		t.Fatal("one more of the same address has begun")
	}
	for n, from := range []string{"192.0.2.2", "192.0.2.3", "192.0.2.2", "192.0.2.3"} {
		s := w.beginFrom(from, "localhost")
		if s.Handshake == nil {
			t.Fatalf("%s is refused", from)
		}
		s.answered()
		w.eventually("it waits", func(Stats) bool { return w.isWaiting(s.Handshake) })
		<-w.signal(flood[n].slot)
		if _, result := flood[n].Take(); result == nil || result.Code != wirev1.Code_CODE_OVERLOADED {
			t.Fatalf("number %d of the flood ended with %+v", n, result)
		}
	}
	for _, from := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"} {
		if s := w.beginFrom(from, "localhost"); s.Handshake != nil {
			t.Fatalf("%s gets more than its part", from)
		}
	}
	if s := w.Stats(); s.UnderWay != most || s.GaveWay != 4 || s.Refused != 4 {
		t.Fatalf("%+v", s)
	}
	if s := w.beginFrom("192.0.2.4", "localhost"); s.Handshake == nil {
		t.Fatal("who has none is refused")
	}
}

// Who floods takes nothing from those that have fewer, however long their clients let them wait.
func TestAFloodTakesNoPlaceOfOthers(t *testing.T) {
	w := start(t, Config{Most: 3, Patience: time.Nanosecond}, nil)
	slow := w.beginFrom("192.0.2.2", "localhost")
	slow.answered()
	w.eventually("it waits", func(Stats) bool { return w.isWaiting(slow.Handshake) })
	for range 6 {
		s := w.beginFrom("192.0.2.1", "localhost")
		if s.Handshake == nil {
			t.Fatal("refused, though one of its own waits")
		}
		s.answered()
		w.eventually("it waits", func(Stats) bool { return w.isWaiting(s.Handshake) })
	}
	if s := w.Stats(); !w.isWaiting(slow.Handshake) || s.UnderWay != 3 || s.Refused != 0 {
		t.Fatalf("it has ended: %+v", s)
	}
}

// inTurns has one of an address compute, and so many wait for the worker. goOn lets it go on; names
// are sent which names the handshakes ask for, in the order in which they compute.
func inTurns(t *testing.T, most, waiting int) (w *world, queued []*shaking, goOn func(), names chan string) {
	t.Helper()
	inside, wait := make(chan struct{}), make(chan struct{})
	names = make(chan string, 100)
	var first sync.Once
	w = start(t, Config{Most: most, Workers: 1}, func(hello *tls.ClientHelloInfo) {
		names <- hello.ServerName
		first.Do(func() {
			close(inside)
			<-wait
		})
	})
	goOn = sync.OnceFunc(func() { close(wait) })
	t.Cleanup(goOn)
	w.beginFrom("192.0.2.1", "localhost")
	<-inside
	for range waiting {
		queued = append(queued, w.queue("192.0.2.1", "localhost"))
	}
	return w, queued, goOn, names
}

// queue begins a handshake that waits for a worker.
func (w *world) queue(from, name string) *shaking {
	w.Helper()
	s := w.beginFrom(from, name)
	if s.Handshake == nil {
		w.Fatalf("%s is refused", from)
	}
	w.eventually("it waits for a worker", func(Stats) bool {
		w.Pool.mu.Lock()
		defer w.Pool.mu.Unlock()
		return s.queued != nil
	})
	return s
}

// Who waits for a worker waits for its own address, and for one turn of each other.
func TestAddressesTakeTurnsToCompute(t *testing.T) {
	const waiting = 10
	w, _, goOn, names := inTurns(t, 100, waiting)
	w.queue("192.0.2.2", "other")
	w.queue("192.0.2.2", "other")
	w.queue("", "other") // who counts for no address is one of its own
	goOn()
	var order []string
	for range 1 + waiting + 3 {
		order = append(order, <-names)
	}
	want := []string{"localhost", "localhost", "other", "other", "localhost", "other"}
	if !slices.Equal(order[:len(want)], want) {
		t.Fatalf("they computed in the order %v", order)
	}
}

// The last one of an address that has many of them wait for a worker gives way too, is told so, and
// computes nothing.
func TestWhoWaitsForAWorkerGivesWay(t *testing.T) {
	w, queued, goOn, names := inTurns(t, 4, 3)
	w.queue("192.0.2.2", "other")
	last := queued[len(queued)-1]
	<-w.signal(last.slot)
	sent, result := last.Take()
	if result == nil || result.Code != wirev1.Code_CODE_OVERLOADED || !bytes.Equal(sent, Overloaded()) {
		t.Fatalf("it ended with %+v, and is told %x", result, sent)
	}
	goOn()
	for range 4 {
		<-names
	}
	if s := w.Stats(); s.UnderWay != 4 || s.GaveWay != 1 {
		t.Fatalf("%+v", s)
	}
	w.eventually("all have computed", func(Stats) bool { w.Pool.mu.Lock(); defer w.Pool.mu.Unlock(); return w.Pool.free == 1 })
	if len(names) > 0 {
		t.Fatal("what gave way was computed")
	}
}

// A client that leaves while its handshake waits for a worker gives its place back at once.
func TestAClientThatLeavesTheLineGivesItsPlaceBack(t *testing.T) {
	w, queued, goOn, names := inTurns(t, 3, 2)
	if s := w.beginFrom("192.0.2.1", "localhost"); s.Handshake != nil {
		t.Fatal("there is a place")
	}
	queued[0].End()
	if n := w.Stats().UnderWay; n != 2 {
		t.Fatalf("%d are under way", n)
	}
	again := w.queue("192.0.2.1", "other")
	goOn()
	if got := []string{<-names, <-names, <-names}; !slices.Equal(got, []string{"localhost", "localhost", "other"}) {
		t.Fatalf("they computed in the order %v", got)
	}
	again.answered()
}

// So many compute at a time, and those that wait for their clients keep nobody from it.
func TestSoManyComputeAtATime(t *testing.T) {
	const workers, clients = 2, 8
	var computing, most atomic.Int64
	goOn := make(chan struct{})
	w := start(t, Config{Workers: workers}, func(*tls.ClientHelloInfo) {
		n := computing.Add(1)
		for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
		}
		<-goOn
		computing.Add(-1)
	})
	var all []*shaking
	for range clients {
		all = append(all, w.begin("localhost"))
	}
	w.eventually("all workers compute", func(Stats) bool { return computing.Load() == workers })
	close(goOn)
	for _, s := range all {
		s.answered()
	}
	if n := most.Load(); n != workers || w.Stats().UnderWay != clients {
		t.Fatalf("%d computed at a time, %+v", n, w.Stats())
	}
}

// A connection that ends takes its handshake with it, and nobody is told.
func TestAClientThatLeaves(t *testing.T) {
	w := start(t, Config{}, nil)
	s := w.begin("localhost")
	s.answered()
	s.End()
	s.End()
	s.Feed([]byte("late"))
	w.eventually("it has ended", func(s Stats) bool { return s.UnderWay == 0 && s.Failed == 1 })
	if sent, result := s.Take(); result != nil || len(sent) > 0 {
		t.Fatalf("%d bytes, %+v", len(sent), result)
	}
}

// A panic ends its own handshake, with the only worker given back.
func TestAPanicEndsOneHandshakeAlone(t *testing.T) {
	w := start(t, Config{Workers: 1}, func(hello *tls.ClientHelloInfo) {
		if hello.ServerName == "other" {
			panic("no such file")
		}
	})
	waiting := w.begin("localhost")
	waiting.answered()
	for range 3 {
		result, err := w.begin("other").finish()
		if result.Conn != nil || result.Code != wirev1.Code_CODE_INTERNAL || strings.Contains(result.Text, "file") {
			t.Fatalf("%+v", result)
		}
		if err == nil || !strings.Contains(err.Error(), "internal error") {
			t.Fatalf("the client was told %v", err)
		}
	}
	if result, err := w.begin("localhost").finish(); err != nil || result.Conn == nil {
		t.Fatalf("%+v, the client was told %v", result, err)
	}
	if s := w.Stats(); s.Failed != 3 || s.Full != 1 || s.UnderWay != 1 {
		t.Fatalf("%+v", s)
	}
}

func TestStopEndsHandshakes(t *testing.T) {
	inside, goOn := make(chan struct{}), make(chan struct{})
	w := start(t, Config{Workers: 1}, func(hello *tls.ClientHelloInfo) {
		if hello.ServerName == "other" {
			close(inside)
			<-goOn
		}
	})
	for range 3 {
		w.begin("localhost").answered()
	}
	w.begin("other")
	<-inside
	waits := w.begin("localhost") // for the worker
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Stop(over); !errors.Is(err, context.Canceled) {
		t.Fatalf("it stops in the middle of computing: %v", err)
	}
	if s := w.begin("localhost"); s.Handshake != nil {
		t.Fatal("one begins while the pool stops")
	}
	close(goOn)
	if err := w.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := w.Stats(); s.UnderWay != 0 || s.Failed != 5 || s.Full != 0 {
		t.Fatalf("%+v", s)
	}
	if _, result := waits.Take(); result != nil {
		t.Fatalf("%+v", result)
	}
}
