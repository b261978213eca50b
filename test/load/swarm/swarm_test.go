package swarm

import (
	"bufio"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// hall is a server of the bare kind in a few lines: what a swarm should say of it is known.
type hall struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
	mute  bool // doesn't answer hello
}

func openHall(t *testing.T, mute bool) *hall {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hall{Listener: l, mute: mute}
	t.Cleanup(func() { _ = l.Close(); h.closeAll() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go h.welcome(conn)
		}
	}()
	return h
}

func (h *hall) welcome(conn net.Conn) {
	if b, err := bufio.NewReader(conn).ReadByte(); err != nil || b != 's' || h.mute {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conns = append(h.conns, conn)
	_, _ = conn.Write([]byte("s"))
}

// tell sends to all but the last few.
func (h *hall) tell(text string, but int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.conns[:len(h.conns)-but] {
		_, _ = c.Write([]byte(text))
	}
}

func (h *hall) closeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.conns {
		_ = c.Close()
	}
}

func dialHall(t *testing.T, h *hall, conns int) *Swarm {
	t.Helper()
	s, err := Dial(t.Context(), Config{Addr: h.Addr().String(), Dialect: &Bare{Size: size}, Conns: conns})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestCountsWhatEveryConnectionGot(t *testing.T) {
	h := openHall(t, false)
	s := dialHall(t, h, 500) // more than may be unanswered at a time
	if !s.Connected() || s.Subscribed() != 500 {
		t.Fatalf("%d are subscribed", s.Subscribed())
	}
	s.Restart()
	s.Await(3)
	h.tell(payload+payload[:10], 0) // one and a part
	h.tell(payload[10:]+payload, 0)
	if err := s.Until(2 * time.Minute); err != nil {
		t.Fatal(err)
	}
	if s.Received() != 1500 {
		t.Fatalf("received %d", s.Received())
	}
	h.tell(payload, 2)
	s.Await(4)
	const rest = "2 of 500"
	err := s.Until(200 * time.Millisecond)
	for began := time.Now(); err != nil && !strings.Contains(err.Error(), rest) && time.Since(began) < patience; {
		err = s.Until(200 * time.Millisecond) // on a busy machine the others may take longer
	}
	if err == nil || !strings.Contains(err.Error(), rest) {
		t.Fatalf("two got nothing, and the swarm says %v", err)
	}
	if s.Missing() != 2 {
		t.Fatalf("%d are missing", s.Missing())
	}
}

func TestALostConnectionIsAnError(t *testing.T) {
	h := openHall(t, false)
	s := dialHall(t, h, 3)
	h.closeAll()
	s.Await(1)
	if err := s.Until(2 * time.Minute); err == nil || strings.Contains(err.Error(), "INCOMPLETE") {
		t.Fatalf("got %v", err)
	}
}

// A socket that has something to read is told of once: nothing of it may be left.
func TestMoreThanOneReadTakesIsRead(t *testing.T) {
	h := openHall(t, false)
	s := dialHall(t, h, 2)
	many := 3 * len(s.buf) / size
	s.Await(many)
	told := make(chan struct{})
	go func() {
		defer close(told)
		h.tell(strings.Repeat(payload, many), 0)
	}()
	if err := s.Until(2 * time.Minute); err != nil {
		t.Fatal(err)
	}
	<-told
	if want := uint64(2 * many); s.Received() != want {
		t.Fatalf("received %d of %d", s.Received(), want)
	}
}

func TestTheEndRightAfterAMessageIsNoticed(t *testing.T) {
	h := openHall(t, false)
	s := dialHall(t, h, 1)
	h.tell(payload, 0)
	h.closeAll()
	s.Await(2)
	if err := s.Until(2 * time.Minute); err == nil || !strings.Contains(err.Error(), "after 1 messages") {
		t.Fatalf("got %v", err)
	}
}

func TestDialEndsWithItsContext(t *testing.T) {
	h := openHall(t, false)
	_ = h.Close()
	if _, err := Dial(t.Context(), Config{Addr: h.Addr().String(), Dialect: &Bare{Size: size}, Conns: 1}); err == nil {
		t.Fatal("nobody listens, and Dial succeeded")
	}
}

// pinger asks whether a connection lives with one byte, and 's' answers.
type pinger struct{ Bare }

func (p *pinger) Ping() []byte { return []byte("i") }

func TestEveryConnectionPingsOncePerHeartbeat(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const conns = 10
	pings := make(chan int, 1000)
	go func() {
		for n := 0; ; n++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				r := bufio.NewReader(conn)
				for b, err := r.ReadByte(); err == nil; b, err = r.ReadByte() {
					if b == 'i' {
						pings <- n
					} else if _, err := conn.Write([]byte("s")); err != nil {
						return
					}
				}
			}()
		}
	}()
	s, err := Dial(t.Context(), Config{Addr: l.Addr().String(), Dialect: &pinger{Bare{Size: size}}, Conns: conns, Heartbeat: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	began := time.Now()
	for _, at := range []time.Duration{0, 30 * time.Second, time.Minute, 2 * time.Minute} {
		if err := s.Beat(began.Add(at)); err != nil {
			t.Fatal(err)
		}
	}
	count := map[int]int{}
	for range 2 * conns {
		select {
		case n := <-pings:
			count[n]++
		case <-time.After(2 * time.Minute):
			t.Fatalf("only %v pinged", count)
		}
	}
	for n := range conns {
		if count[n] != 2 {
			t.Errorf("connection %d pinged %d times in two heartbeats", n, count[n])
		}
	}
}
