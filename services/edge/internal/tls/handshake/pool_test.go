package handshake

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"strings"
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
	return h.place != nil
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
