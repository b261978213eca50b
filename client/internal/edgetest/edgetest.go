// Package edgetest is an edge for tests, whose every frame the test says.
package edgetest

import (
	"bufio"
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// Patience bounds every wait, and says only that something never came: nothing comes near it.
const Patience = 60 * time.Second

// Edge hands its connections to the test one by one.
type Edge struct {
	t     *testing.T
	ln    net.Listener
	conns chan *Conn
	wg    sync.WaitGroup
}

// New is an edge that listens.
func New(t *testing.T) *Edge {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := NewPipe(t)
	e.ln = ln
	e.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			e.conns <- &Conn{T: t, Net: c, Reader: bufio.NewReader(c)}
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		e.wg.Wait()
	})
	return e
}

// NewPipe is an edge at the other end of pipes, which Dial makes.
func NewPipe(t *testing.T) *Edge { return &Edge{t: t, conns: make(chan *Conn, 100)} }

// Dial makes a pipe.
func (e *Edge) Dial(context.Context, string) (net.Conn, error) {
	near, far := net.Pipe()
	e.conns <- &Conn{T: e.t, Net: far, Reader: bufio.NewReader(far)}
	return near, nil
}

// Addr that it listens on.
func (e *Edge) Addr() string { return e.ln.Addr().String() }

// Accept waits for a connection of this test, whose name its agent is, and takes its Hello.
func (e *Edge) Accept() (*Conn, *wirev1.Hello) {
	e.t.Helper()
	for deadline := time.After(Patience); ; {
		select {
		case c := <-e.conns:
			_ = c.Net.SetReadDeadline(time.Now().Add(Patience))
			ft, body, err := wire.Read(c.Reader, nil, wire.MaxHello)
			hello := &wirev1.Hello{}
			if err == nil && ft == wirev1.FrameType_FRAME_TYPE_HELLO && proto.Unmarshal(body, hello) == nil && hello.GetAgent() == e.t.Name() {
				e.t.Cleanup(c.Close)
				return c, hello
			}
			c.Close()
		case <-deadline:
			e.t.Fatal("nobody connects")
		}
	}
}

// Welcome accepts a connection and answers with that Welcome.
func (e *Edge) Welcome(w *wirev1.Welcome) *Conn {
	e.t.Helper()
	c, _ := e.Accept()
	c.Send(wirev1.FrameType_FRAME_TYPE_WELCOME, w)
	return c
}

// Conn is the edge's end of one connection.
type Conn struct {
	T      *testing.T
	Net    net.Conn
	Reader *bufio.Reader
}

// Send sends a frame.
func (c *Conn) Send(ft wirev1.FrameType, m proto.Message) {
	c.T.Helper()
	b, err := wire.Append(nil, ft, m)
	if err != nil {
		c.T.Fatal(err)
	}
	if _, err := c.Net.Write(b); err != nil {
		c.T.Fatalf("send %v: %v", ft, err)
	}
}

// Next reads one frame that is no Ping.
func (c *Conn) Next() (wirev1.FrameType, []byte) {
	c.T.Helper()
	for {
		_ = c.Net.SetReadDeadline(time.Now().Add(Patience))
		ft, body, err := wire.Read(c.Reader, nil, wire.MaxBody)
		if err != nil {
			c.T.Fatalf("read: %v", err)
		}
		if ft != wirev1.FrameType_FRAME_TYPE_PING {
			return ft, body
		}
	}
}

// Expect reads one frame of a type.
func (c *Conn) Expect(want wirev1.FrameType, into proto.Message) {
	c.T.Helper()
	ft, body := c.Next()
	if ft != want {
		c.T.Fatalf("got %v, want %v", ft, want)
	}
	if err := proto.Unmarshal(body, into); err != nil {
		c.T.Fatal(err)
	}
}

// Close ends the connection.
func (c *Conn) Close() { _ = c.Net.Close() }
