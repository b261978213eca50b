package netpoll

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
)

// eachPoller runs a test of what a poll.Poller promises with every kind that this system has.
func eachPoller(t *testing.T, test func(t *testing.T, open func(n int) []poll.Poller)) {
	kinds := map[string]func(addr string, b poll.Buffers, n, events int) ([]poll.Poller, error){"net": Open}
	if poll.HasEpoll {
		kinds["epoll"] = poll.OpenEpoll
	}
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			test(t, func(n int) []poll.Poller {
				all, err := kind("127.0.0.1:0", poll.Buffers{}, n, 64)
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range all {
					t.Cleanup(func() {
						if err := p.Close(); err != nil {
							t.Error(err)
						}
					})
				}
				return all
			})
		})
	}
}

// patience with what comes at once. It says only that something never comes.
const patience = time.Minute

// until runs the poller until done has seen an event that it is content with.
func until(t *testing.T, p poll.Poller, what string, done func(e poll.Event) bool) {
	t.Helper()
	var late atomic.Bool
	deadline := time.AfterFunc(patience, func() { late.Store(true); p.Wake() })
	defer deadline.Stop()
	var events []poll.Event
	err := p.Run(func() poll.Next {
		var full bool
		var err error
		if events, full, err = p.Events(events[:0]); err != nil {
			t.Error(err)
			return poll.End
		}
		for _, e := range events {
			if done(e) {
				return poll.End
			}
			if e.Slot == poll.SlotWaker && late.Load() {
				t.Errorf("never: %s", what)
				return poll.End
			}
		}
		if full {
			return poll.Again
		}
		return poll.Park
	})
	if err != nil || t.Failed() {
		t.Fatal(err)
	}
}

// call connects to the poller, which accepts.
func call(t *testing.T, p poll.Poller) (fd int, peer *net.TCPConn) {
	t.Helper()
	peer = dial(t, p)
	until(t, p, "somebody calls", func(e poll.Event) bool { return e.Slot == poll.SlotListener })
	fd, _, err := p.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return fd, peer
}

func dial(t *testing.T, p poll.Poller) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(3 * patience)); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

func listening(t *testing.T, open func(n int) []poll.Poller) poll.Poller {
	t.Helper()
	p := open(1)[0]
	if err := p.Listen(); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestWhatCameBeforeAddIsAnEvent(t *testing.T) {
	eachPoller(t, func(t *testing.T, open func(n int) []poll.Poller) {
		p := listening(t, open)
		fd, peer := call(t, p)
		if _, err := peer.Write([]byte("hi")); err != nil {
			t.Fatal(err)
		}
		if err := p.Add(fd, 5, 77); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 10)
		until(t, p, "it is read", func(e poll.Event) bool {
			if e.Slot != 5 || e.Gen != 77 || !e.Readable {
				return false
			}
			n, err := poll.Read(fd, b)
			return err == nil && string(b[:n]) == "hi"
		})
		if _, err := poll.Read(fd, b); !errors.Is(err, poll.ErrAgain) {
			t.Fatalf("read more: %v", err)
		}
		if err := p.Drop(fd); err != nil {
			t.Fatal(err)
		}
		if _, err := peer.Read(b); !errors.Is(err, io.EOF) {
			t.Fatalf("after Drop: %v", err)
		}
	})
}

func TestStuckSendsGoOnAndTheEndIsSeen(t *testing.T) {
	eachPoller(t, func(t *testing.T, open func(n int) []poll.Poller) {
		p := listening(t, open)
		fd, peer := call(t, p)
		if err := p.Add(fd, 5, 77); err != nil {
			t.Fatal(err)
		}
		big := bytes.Repeat([]byte("x"), 16<<20)
		w := poll.NewWriter()
		sent := 0
		send := func() bool {
			for {
				n, err := w.Write(fd, [][]byte{big[sent:]})
				if errors.Is(err, poll.ErrAgain) {
					p.Stuck(fd)
					p.Stuck(fd) // once is enough
					return false
				}
				if err != nil {
					t.Fatal(err)
				}
				if sent += n; sent == len(big) {
					return true
				}
			}
		}
		if send() {
			t.Fatal("the kernel has taken it all")
		}
		read := make(chan error, 1)
		go func() {
			_, err := io.ReadFull(peer, make([]byte, len(big)))
			read <- errors.Join(err, peer.CloseWrite())
		}()
		until(t, p, "all is sent", func(e poll.Event) bool { return e.Slot == 5 && e.Writable && send() })
		if err := <-read; err != nil {
			t.Fatal(err)
		}
		until(t, p, "the peer's end", func(e poll.Event) bool {
			if e.Slot != 5 || !e.Readable && !e.HungUp {
				return false
			}
			n, err := poll.Read(fd, make([]byte, 1))
			return n == 0 && err == nil
		})
		if err := poll.EndWrites(fd); err != nil {
			t.Fatal(err)
		}
		if _, err := peer.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Fatalf("after the end: %v", err)
		}
	})
}

func TestResetIsBroken(t *testing.T) {
	eachPoller(t, func(t *testing.T, open func(n int) []poll.Poller) {
		p := listening(t, open)
		fd, peer := call(t, p)
		if err := p.Add(fd, 1, 2); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(peer.SetLinger(0), peer.Close()); err != nil {
			t.Fatal(err)
		}
		until(t, p, "broken", func(e poll.Event) bool { return e.Slot == 1 && e.Gen == 2 && e.Broken })
	})
}

func TestWakesTicksAndAlarmsComeAgainAndAgain(t *testing.T) {
	eachPoller(t, func(t *testing.T, open func(n int) []poll.Poller) {
		p := open(1)[0]
		if err := errors.Join(p.Tick(time.Millisecond), p.SetAlarm(1)); err != nil {
			t.Fatal(err)
		}
		seen := map[uint32]int{}
		until(t, p, "three of each", func(e poll.Event) bool {
			seen[e.Slot]++
			if e.Slot == poll.SlotAlarm {
				if err := p.SetAlarm(int64(time.Millisecond)); err != nil {
					t.Error(err)
				}
			}
			p.Wake()
			return seen[poll.SlotWaker] >= 3 && seen[poll.SlotTicker] >= 3 && seen[poll.SlotAlarm] >= 3
		})
		if len(seen) != 3 {
			t.Fatalf("events of %v", seen)
		}
	})
}

// What happens while a turn is on its way to parking must wake it: nothing else would.
func TestNothingIsMissedBetweenEventsAndPark(t *testing.T) {
	eachPoller(t, func(t *testing.T, open func(n int) []poll.Poller) {
		p := open(1)[0]
		var events []poll.Event
		turns, woken, again := 0, 0, 0
		err := p.Run(func() poll.Next {
			turns++
			var full bool
			var err error
			if events, full, err = p.Events(events[:0]); err != nil || full {
				t.Fatalf("%v, full %v", err, full)
			}
			woken += len(events)
			switch {
			case woken == 1000:
				return poll.End
			case turns%3 == 0:
				again++
				return poll.Again // comes without an event
			case turns%2 == 0:
				go p.Wake()
			default:
				p.Wake()
			}
			return poll.Park
		})
		if err != nil || woken != 1000 || again == 0 {
			t.Fatalf("%d turns, %d wakes: %v", turns, woken, err)
		}
	})
}

func TestDropEndsEvents(t *testing.T) {
	eachPoller(t, func(t *testing.T, open func(n int) []poll.Poller) {
		p := listening(t, open)
		fd, peer := call(t, p)
		twin, err := unix.Dup(fd) // so that the kernel does not forget the socket with fd
		if err != nil {
			t.Fatal(err)
		}
		defer poll.Close(twin)
		if err := p.Add(fd, 1, 2); err != nil {
			t.Fatal(err)
		}
		if err := p.Drop(fd); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); !errors.Is(err, unix.EBADF) {
			t.Fatalf("the descriptor is open: %v", err)
		}
		if _, err := peer.Write([]byte("anybody?")); err != nil {
			t.Fatal(err)
		}
		next, _ := call(t, p) // events that come later have come
		defer poll.Close(next)
		events, _, err := p.Events(nil)
		for _, e := range events {
			if err != nil || e.Slot == 1 {
				t.Fatalf("%+v of a socket that is no more; %v", e, err)
			}
		}
	})
}

func TestADeafPollerIsNotCalled(t *testing.T) {
	eachPoller(t, func(t *testing.T, open func(n int) []poll.Poller) {
		p := listening(t, open)
		fd, _ := call(t, p)
		defer poll.Close(fd)
		if _, _, err := p.Accept(); !errors.Is(err, poll.ErrAgain) {
			t.Fatalf("nobody else called: %v", err)
		}
		p.Deafen()
		if c, err := net.Dial("tcp", p.Addr().String()); err == nil {
			_ = c.Close()
			t.Fatal("it still listens")
		}
	})
}
