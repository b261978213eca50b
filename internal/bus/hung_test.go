package bus

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/meshid/meshidtest"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// server is a NATS server that knows how to greet. Once it is hung it takes connections and says
// nothing.
type server struct {
	ln   net.Listener
	hung atomic.Bool
	ends atomic.Bool   // instead of answering a PING
	held chan struct{} // a connection that it is hung for
	wg   sync.WaitGroup
	mu   sync.Mutex
	all  []net.Conn
}

func newServer(t *testing.T) *server {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{ln: ln, held: make(chan struct{}, 1000)}
	s.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.all = append(s.all, c)
			s.mu.Unlock()
			if s.hung.Load() {
				s.held <- struct{}{}
				continue
			}
			s.wg.Go(func() { s.greet(c) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		s.cut()
		s.wg.Wait()
	})
	return s
}

// cut ends every connection.
func (s *server) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.all {
		_ = c.Close()
	}
}

func (s *server) greet(c net.Conn) {
	if _, err := fmt.Fprint(c, `INFO {"server_id":"x","version":"2.10.0","headers":true,"max_payload":1048576}`+"\r\n"); err != nil {
		return
	}
	for lines := bufio.NewScanner(c); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "PING") {
			if s.ends.Swap(false) {
				_ = c.Close()
				return
			}
			if _, err := fmt.Fprint(c, "PONG\r\n"); err != nil {
				return
			}
		}
	}
}

// A server that takes connections and says nothing, as one behind a partition does, has nobody wait
// who asks, publishes or requests: nats.go would, for as long as its Timeout of 2 s. The best of
// several rounds counts.
func TestNobodyWaitsForAServerThatHangs(t *testing.T) {
	s := newServer(t)
	b := New(Config{URL: "nats://" + s.ln.Addr().String(), Mesh: meshidtest.Identity(), Log: slog.New(slog.DiscardHandler)})
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Stop(t.Context()) }()
	// a first try may have run out of time
	await(t, "connected", func() bool { return b.Connected() && b.Publish("a", nil) == nil })
	s.hung.Store(true)
	s.cut()
	await(t, "not connected", func() bool { return !b.Connected() }) // a callback says so
	best := time.Hour
	for range 8 {
		select {
		case <-s.held:
		case <-time.After(time.Minute):
			t.Fatal("nobody connects")
		}
		began := time.Now()
		connected, err := b.Connected(), b.Publish("a", nil)
		_, asked := b.Request(t.Context(), "a", nil)
		flushed := b.Flush(t.Context())
		if connected || code.Of(err) != wirev1.Code_CODE_UNAVAILABLE || code.Of(asked) != wirev1.Code_CODE_UNAVAILABLE || flushed != nil {
			t.Fatalf("connected %v, publish %v, request %v, flush %v", connected, err, asked, flushed)
		}
		if best = min(best, time.Since(began)); best < 500*time.Millisecond {
			return
		}
	}
	t.Errorf("it took %s at best", best)
}

// A server that goes away while a flush waits for it is nobody to wait for, though the callback
// that says so comes later.
func TestAFlushEndsWithItsServer(t *testing.T) {
	s := newServer(t)
	b := New(Config{URL: "nats://" + s.ln.Addr().String(), Mesh: meshidtest.Identity(), Log: slog.New(slog.DiscardHandler)})
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Stop(t.Context()) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 5 {
		await(t, "connected", func() bool { return b.Connected() && b.Flush(ctx) == nil })
		s.ends.Store(true)
		if err := b.Flush(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never %s", what)
		}
	}
}
