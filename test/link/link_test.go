package link

import (
	"io"
	"net"
	"testing"
	"time"
)

// echo answers with what it is told.
func echo(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	return ln.Addr().String()
}

func dial(t *testing.T, l *Link) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func hear(t *testing.T, c net.Conn, within time.Duration) error {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

func say(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := c.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
}

func TestFaults(t *testing.T) {
	l := New(t, echo(t), nil)
	c := dial(t, l)
	say(t, c)
	if err := hear(t, c, time.Minute); err != nil {
		t.Fatal(err)
	}
	for _, f := range []Fault{{Up: true}, {Down: true}, {Up: true, Down: true}} {
		l.Set("", f)
		say(t, c)
		if err := hear(t, c, 50*time.Millisecond); err == nil {
			t.Fatalf("%+v: it was passed on", f)
		}
		l.Set("other", Fault{})
		l.Set("", Fault{})
		if err := hear(t, c, time.Minute); err != nil {
			t.Fatalf("%+v: afterwards: %v", f, err)
		}
	}
	if n := l.Connections(""); n != 1 {
		t.Errorf("%d connections", n)
	}
	l.Set("", Fault{Cut: true})
	if err := hear(t, c, time.Minute); err == nil {
		t.Fatal("not cut")
	}
	if err := hear(t, dial(t, l), time.Minute); err == nil {
		t.Fatal("not refused")
	}
	l.Set("", Fault{})
	c = dial(t, l)
	say(t, c)
	if err := hear(t, c, time.Minute); err != nil {
		t.Fatal(err)
	}
}

func TestClientsHaveNames(t *testing.T) {
	names := make(chan string, 2)
	names <- "a"
	l := New(t, echo(t), func(net.Addr) string { return <-names })
	a := dial(t, l)
	say(t, a)
	if err := hear(t, a, time.Minute); err != nil {
		t.Fatal(err)
	}
	names <- "b"
	l.Set("a", Fault{Cut: true})
	b := dial(t, l)
	say(t, b)
	if err := hear(t, b, time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := hear(t, a, time.Minute); err == nil {
		t.Fatal("a was not cut")
	}
}
