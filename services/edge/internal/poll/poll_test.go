package poll

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// pair is a connection: the accepted descriptor, and the other end.
func pair(t *testing.T) (fd int, peer net.Conn) {
	t.Helper()
	listener, at, err := Bind(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer Close(listener)
	if err := Listen(listener); err != nil {
		t.Fatal(err)
	}
	if _, err := Accept(listener); !errors.Is(err, ErrAgain) {
		t.Fatalf("nobody called: %v", err)
	}
	if peer, err = net.Dial("tcp", at.String()); err != nil {
		t.Fatal(err)
	}
	if fd, err = Accept(listener); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Close(fd); _ = peer.Close() })
	if err := peer.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return fd, peer
}

func TestPortIsShared(t *testing.T) {
	a, at, err := Bind(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer Close(a)
	b, again, err := Bind(t.Context(), at.String())
	if err != nil || again != at {
		t.Fatalf("%v %v", again, err)
	}
	Close(b)
	if _, _, err := Bind(t.Context(), "no such address"); err == nil {
		t.Fatal("bound to nonsense")
	}
}

func TestWriteManyPieces(t *testing.T) {
	fd, peer := pair(t)
	var bufs [][]byte
	for i := range MaxPieces + 10 {
		bufs = append(bufs, []byte{byte(i)}, nil)
	}
	w := NewWriter()
	n, err := w.Write(fd, bufs)
	if err != nil || n != MaxPieces {
		t.Fatalf("wrote %d: %v", n, err)
	}
	got := make([]byte, n)
	if _, err := io.ReadFull(peer, got); err != nil {
		t.Fatal(err)
	}
	for i, b := range got {
		if b != byte(i) {
			t.Fatalf("byte %d is %d", i, b)
		}
	}
}

func TestPartialWriteAndEvents(t *testing.T) {
	fd, peer := pair(t)
	p, err := New(8)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	if err := p.Add(fd, 5, 77); err != nil {
		t.Fatal(err)
	}
	big := bytes.Repeat([]byte("x"), 16<<20)
	w := NewWriter()
	sent := 0
	for {
		n, err := w.Write(fd, [][]byte{big[sent:]})
		if errors.Is(err, ErrAgain) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		sent += n
	}
	if sent == 0 || sent == len(big) {
		t.Fatalf("sent %d", sent)
	}
	if _, err := p.Wait(nil, true); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(peer, make([]byte, sent)); err != nil {
		t.Fatal(err)
	}
	for writable := false; !writable; {
		events, err := p.Wait(nil, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if e.Slot != 5 || e.Gen != 77 {
				t.Fatalf("event %+v", e)
			}
			writable = writable || e.Writable
		}
	}
	if err := EndWrites(fd); err != nil {
		t.Fatal(err)
	}
	if _, err := peer.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("after the end: %v", err)
	}
	_ = peer.Close()
	for {
		events, err := p.Wait(nil, false)
		if err != nil {
			t.Fatal(err)
		}
		if len(events) > 0 && events[0].HungUp {
			break
		}
	}
	if n, err := Read(fd, make([]byte, 1)); n != 0 || err != nil {
		t.Fatalf("read %d, %v from a closed peer", n, err)
	}
}

func TestWakerAndTickerWakeAgainAndAgain(t *testing.T) {
	p, err := New(8)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	waker, err := NewWaker()
	if err != nil {
		t.Fatal(err)
	}
	defer Close(waker)
	ticker, err := NewTicker(time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer Close(ticker)
	if err := errors.Join(p.Add(waker, 1, 0), p.Add(ticker, 2, 0)); err != nil {
		t.Fatal(err)
	}
	woken, ticked := 0, 0
	for woken < 3 || ticked < 3 {
		Wake(waker)
		events, err := p.Wait(nil, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			switch {
			case e.Slot == 1 && e.Readable:
				woken++
			case e.Slot == 2 && e.Readable:
				ticked++
				if _, err := Read(ticker, make([]byte, 8)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
