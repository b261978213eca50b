package play

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// frame is one that a client has sent.
type frame struct {
	at    time.Time
	t     wirev1.FrameType
	m     map[string]any
	taken bool // by a step
}

// passing frames may come at any time.
func (f *frame) passing() bool {
	switch f.t {
	case wirev1.FrameType_FRAME_TYPE_PING, wirev1.FrameType_FRAME_TYPE_PONG, wirev1.FrameType_FRAME_TYPE_ACK:
		return true
	}
	return false
}

// sentMessage is a message that was sent, and whether it was ACKed.
type sentMessage struct {
	topic string
	seq   uint64
	acked bool
}

// conn is the edge's end of a connection. One goroutine reads it.
type conn struct {
	edge  *edge
	board *board
	raw   *rawConn
	at    time.Time // it was accepted

	// Guarded by board.mu.
	frames  []*frame
	sent    []*sentMessage
	gone    []uint32 // ids of subscriptions that the client has ended
	silent  bool
	ended   bool // the client has ended it, or it is gone
	endedAt time.Time
	taken   bool

	write sync.Mutex
	out   io.Writer // of frames; nil until it is known what the client speaks
	web   *websocket.Conn
}

// rawConn writes in pieces where a scene wants that.
type rawConn struct {
	net.Conn
	in     *bufio.Reader
	pieces atomic.Int64 // bytes at once; 0: all
	pause  atomic.Int64 // between them
}

func (r *rawConn) Read(b []byte) (int, error) { return r.in.Read(b) }

func (r *rawConn) Write(b []byte) (n int, err error) {
	for piece := int(r.pieces.Load()); piece > 0 && len(b) > piece; {
		m, err := r.Conn.Write(b[:piece])
		n += m
		if err != nil {
			return n, err
		}
		b = b[piece:]
		time.Sleep(time.Duration(r.pause.Load())) // a slow link
	}
	m, err := r.Conn.Write(b)
	return n + m, err
}

// serve finds out what the client speaks, and reads its frames until the end.
func (c *conn) serve() {
	defer c.board.post(func() { c.ended, c.endedAt = true, time.Now() })
	first, err := c.raw.in.Peek(1)
	if err != nil {
		return
	}
	if first[0] != 'G' {
		c.speak(c.raw, nil)
		c.read(c.raw)
		return
	}
	done, gone := make(chan struct{}), make(chan struct{})
	srv := &http.Server{
		ReadHeaderTimeout: patience,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(done)
			c.upgrade(w, r)
		}),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed { // without having become a WebSocket
				close(gone)
			}
		},
	}
	one := &oneListener{conns: make(chan net.Conn, 1), addr: c.raw.LocalAddr()}
	one.conns <- c.raw
	go func() { _ = srv.Serve(one) }() // it ends with the listener
	select {
	case <-done:
	case <-gone:
	}
	one.close()
}

func (c *conn) upgrade(w http.ResponseWriter, r *http.Request) {
	web, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"pushmesh.v1"}, InsecureSkipVerify: true})
	switch {
	case err != nil:
		c.board.fail(fmt.Errorf("the request for a WebSocket: %w", err))
		return
	case web.Subprotocol() != "pushmesh.v1":
		c.board.fail(errors.New("the request for a WebSocket does not offer the subprotocol pushmesh.v1"))
		return
	}
	web.SetReadLimit(-1)
	stream := websocket.NetConn(context.Background(), web, websocket.MessageBinary)
	c.speak(stream, web)
	c.read(stream)
}

func (c *conn) speak(out io.Writer, web *websocket.Conn) {
	c.write.Lock()
	defer c.write.Unlock()
	c.out, c.web = out, web
}

// read puts up the frames that come.
func (c *conn) read(r io.Reader) {
	in := bufio.NewReader(r)
	for {
		t, body, err := wire.Read(in, nil, wire.MaxBody)
		if err != nil {
			return
		}
		m, err := decode(t, body)
		if err != nil {
			c.board.fail(fmt.Errorf("the client has sent what is no frame: %w", err))
			return
		}
		f := &frame{at: time.Now(), t: t, m: m}
		answer := false
		c.board.post(func() {
			c.frames = append(c.frames, f)
			c.edge.stage.note("<", f.t, f.m)
			switch t {
			case wirev1.FrameType_FRAME_TYPE_PING:
				answer = !c.silent
			case wirev1.FrameType_FRAME_TYPE_ACK:
				c.ack(body)
			case wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE:
				var u wirev1.Unsubscribe
				if proto.Unmarshal(body, &u) == nil {
					c.gone = append(c.gone, u.GetId())
				}
			}
		})
		if answer {
			pong := &wirev1.Pong{}
			_ = proto.Unmarshal(body, pong) // a Ping has the same field
			_ = c.send(wirev1.FrameType_FRAME_TYPE_PONG, pong)
		}
	}
}

// ack notes what was ACKed, but for subscriptions that the client has ended before: an edge does
// not know them any more. Called with board.mu held.
func (c *conn) ack(body []byte) {
	var a wirev1.Ack
	if proto.Unmarshal(body, &a) != nil {
		return // decode has read it
	}
	for _, e := range a.GetEntries() {
		if slices.Contains(c.gone, e.GetSub()) {
			continue
		}
		for _, m := range c.sent {
			if m.topic == e.GetTopic() && (m.seq == e.GetSeq() || e.GetThrough() && m.seq <= e.GetSeq()) {
				m.acked = true
			}
		}
	}
}

// send sends a frame, once the client has said what it speaks.
func (c *conn) send(t wirev1.FrameType, m proto.Message) error {
	b, err := wire.Append(nil, t, m)
	if err != nil {
		return err
	}
	return c.sendBytes(b)
}

func (c *conn) sendBytes(b []byte) error {
	c.write.Lock()
	defer c.write.Unlock()
	if c.out == nil {
		return errors.New("the client has said nothing yet")
	}
	_, err := c.out.Write(b)
	return err
}

// end ends the connection here: without a word, or by WebSocket with a status.
func (c *conn) end(status int) {
	c.write.Lock()
	web := c.web
	c.write.Unlock()
	if status != 0 && web != nil {
		_ = web.Close(websocket.StatusCode(status), "") // the client may be gone
	}
	_ = c.raw.Close()
}

func timeout() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}

// oneListener hands one connection to a server.
type oneListener struct {
	conns chan net.Conn
	addr  net.Addr
	once  sync.Once
}

func (l *oneListener) Accept() (net.Conn, error) {
	c, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (l *oneListener) close()         { l.once.Do(func() { close(l.conns) }) }
func (l *oneListener) Close() error   { l.close(); return nil }
func (l *oneListener) Addr() net.Addr { return l.addr }
