package handshake

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/testca"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/test/edgetest"
	"github.com/pushmesh/pushmesh/services/edge/internal/tls/record"
)

// patience of tests that would hang.
const patience = time.Minute

// world is a pool, and the loop of its connections, of which there is one for each slot.
type world struct {
	testing.TB
	*Pool
	ca *testca.Authority

	mu    sync.Mutex
	moved map[uint32]chan struct{} // by slot; holds one where the loop was told
	slots uint32
}

// start makes one. cfg's zero values take what tests need; pick is Config.TLS.GetCertificate's part
// beside the certificate.
func start(t testing.TB, cfg Config, pick func(*tls.ClientHelloInfo)) *world {
	t.Helper()
	ca, err := testca.New()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.Certificate("localhost", "other")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{TB: t, ca: ca, moved: map[uint32]chan struct{}{}}
	cfg.TLS = &tls.Config{GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if pick != nil {
			pick(hello)
		}
		return &cert, nil
	}}
	cfg.Workers, cfg.Most, cfg.Patience = cmp.Or(cfg.Workers, 1), cmp.Or(cfg.Most, 100), cmp.Or(cfg.Patience, time.Hour)
	cfg.Log = slog.New(slog.DiscardHandler)
	cfg.Post = func(_ uint16, e exchange.Event) bool {
		select {
		case w.signal(e.(exchange.HandshakeMoved).Conn.Slot) <- struct{}{}:
		default:
		}
		return true
	}
	w.Pool = New(cfg)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := w.Stop(ctx); err != nil {
			t.Error(err)
		}
		w.verifyEmpty()
	})
	return w
}

// verifyEmpty fails where something of handshakes is left that are over.
func (w *world) verifyEmpty() {
	w.Helper()
	p := w.Pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.under)+len(p.origins)+len(p.sizes)+p.silent.Len() != 0 || p.free != p.cfg.Workers {
		w.Errorf("%d handshakes, %d addresses, %d sizes and %d silent ones are left, %d of %d workers are free",
			len(p.under), len(p.origins), len(p.sizes), p.silent.Len(), p.free, p.cfg.Workers)
	}
}

func (w *world) signal(slot uint32) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.moved[slot] == nil {
		w.moved[slot] = make(chan struct{}, 1)
	}
	return w.moved[slot]
}

// eventually waits for what other goroutines do.
func (w *world) eventually(what string, done func(Stats) bool) {
	w.Helper()
	edgetest.WaitFor(w, what, func() error {
		if s := w.Stats(); !done(s) {
			return fmt.Errorf("not yet: %+v", s)
		}
		return nil
	})
}

// shaking is a client's handshake as its loop has it.
type shaking struct {
	*Handshake
	w     *world
	slot  uint32
	loop  net.Conn    // the loop's end of what the client writes to
	told  chan error  // of the client's end: nil once its hands are shaken
	reads chan []byte // of the client
}

// begin has a client send its first record, and the pool begin; Handshake is nil where that
// refuses.
func (w *world) begin(name string) *shaking {
	w.Helper()
	return w.beginFrom("192.0.2.1", name)
}

// beginFrom is begin for a client of an address.
func (w *world) beginFrom(from, name string) *shaking {
	w.Helper()
	loop, socket := net.Pipe()
	w.slots++
	s := &shaking{w: w, slot: w.slots, loop: loop, told: make(chan error, 1), reads: make(chan []byte, 16)}
	w.Cleanup(func() { _, _ = loop.Close(), socket.Close() })
	go func() {
		c := tls.Client(socket, &tls.Config{RootCAs: w.ca.Pool(), ServerName: name})
		s.told <- c.Handshake()
	}()
	go func() {
		defer close(s.reads)
		for {
			b := make([]byte, 4<<10)
			n, err := loop.Read(b)
			if err != nil {
				return
			}
			s.reads <- b[:n]
		}
	}()
	var first []byte
	for record.Whole(first) == 0 {
		first = append(first, <-s.reads...)
	}
	s.Handshake = w.Begin(exchange.Conn{Slot: s.slot, Gen: 1}, from, first)
	return s
}

// answered waits for what the edge sends first, and does not hand it on: so the handshake waits for
// its client.
func (s *shaking) answered() {
	s.w.Helper()
	select {
	case <-s.w.signal(s.slot):
	case <-time.After(patience):
		s.w.Fatal("the edge does not answer")
	}
	if sent, _ := s.Take(); len(sent) == 0 {
		s.w.Fatal("it was told of nothing")
	}
}

// finish does the loop's part until there is a result, and says what the client was told.
func (s *shaking) finish() (result *Result, client error) {
	s.w.Helper()
	late := time.After(patience)
	for result == nil {
		select {
		case b := <-s.reads:
			s.Feed(b)
		case <-s.w.signal(s.slot):
			var sent []byte
			sent, result = s.Take()
			if len(sent) > 0 {
				// a client whose hands are shaken reads no ticket before it reads at all
				go func() { _, _ = s.loop.Write(sent) }()
			}
		case <-late:
			s.w.Fatal("no result")
		}
	}
	select {
	case client = <-s.told:
	case <-late:
		client = fmt.Errorf("the client was told nothing")
	}
	return result, client
}
