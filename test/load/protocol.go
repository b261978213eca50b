package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/test/load/publisher"
)

// protocol is what the load generator must know of a server.
type protocol interface {
	// join makes a fresh connection a subscriber and returns once the server has confirmed it.
	join(conn net.Conn, r *bufio.Reader, n int) error
	// next reads one message and returns its payload, valid until the next call.
	next(conn net.Conn, r *bufio.Reader) ([]byte, error)
	// publisher connects the one that publishes.
	publisher(ctx context.Context) (source, error)
}

// source publishes n messages; the answers of the server are not waited for.
type source interface {
	Publish(n int) error
	Close() error
}

func newProtocol(c *config) (protocol, error) {
	switch c.proto {
	case "push":
		return &push{c: c}, nil
	case "redis":
		return &redis{c: c}, nil
	case "nats":
		return &natsText{c: c}, nil
	}
	return nil, fmt.Errorf("-proto %q: push, redis or nats", c.proto)
}

// push is our own protocol; messages are published through a router.
type push struct{ c *config }

func (p *push) join(conn net.Conn, r *bufio.Reader, n int) error {
	hello, err := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{
		Version: wire.Version, ClientId: "load-" + strconv.Itoa(n), Agent: "load", HeartbeatMs: 600_000,
	})
	if err != nil {
		return err
	}
	both, err := wire.Append(hello, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: p.c.topic})
	if err != nil {
		return err
	}
	if _, err := conn.Write(both); err != nil {
		return err
	}
	for _, want := range []wirev1.FrameType{wirev1.FrameType_FRAME_TYPE_WELCOME, wirev1.FrameType_FRAME_TYPE_SUBSCRIBED} {
		got, body, err := wire.Read(r, nil, wire.MaxBody)
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("got %v %x, want %v", got, body, want)
		}
	}
	return nil
}

func (p *push) next(_ net.Conn, r *bufio.Reader) ([]byte, error) {
	for {
		head, err := r.Peek(wire.HeaderSize)
		if err != nil {
			return nil, err
		}
		n, kind, _ := wire.Header(head)
		frame, err := r.Peek(wire.HeaderSize + n)
		if err != nil {
			return nil, err
		}
		if _, err := r.Discard(len(frame)); err != nil {
			return nil, err
		}
		body := frame[wire.HeaderSize:]
		switch kind {
		case wirev1.FrameType_FRAME_TYPE_MESSAGE:
			return body, nil // the stamp is found by its mark: decoding would be the client's cost, not the server's
		case wirev1.FrameType_FRAME_TYPE_ERROR, wirev1.FrameType_FRAME_TYPE_GO_AWAY:
			var e wirev1.Error
			return nil, errors.Join(fmt.Errorf("%v: %v", kind, &e), proto.Unmarshal(body, &e))
		}
	}
}

func (p *push) publisher(ctx context.Context) (source, error) {
	return publisher.New(ctx, p.c.publish, p.c.topic, p.c.size)
}

// text publishes over a plain connection whose answers are thrown away.
type text struct {
	conn    net.Conn
	size    int
	message func(dst, payload []byte) []byte
}

func newText(ctx context.Context, addr string, size int, message func(dst, payload []byte) []byte) (*text, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	go func() { _, _ = io.Copy(io.Discard, conn) }() // ends with the connection
	return &text{conn, size, message}, nil
}

// Publish writes n messages at once.
func (t *text) Publish(n int) error {
	var out []byte
	payload := make([]byte, t.size)
	for range n {
		publisher.Stamp(payload, time.Now())
		out = t.message(out, payload)
	}
	_, err := t.conn.Write(out)
	return err
}

// Close closes the connection.
func (t *text) Close() error { return t.conn.Close() }

// redis speaks RESP2.
type redis struct{ c *config }

func (p *redis) join(conn net.Conn, r *bufio.Reader, _ int) error {
	if _, err := fmt.Fprintf(conn, "SUBSCRIBE %s\r\n", p.c.topic); err != nil {
		return err
	}
	for range 6 { // *3 $9 subscribe $n topic :1
		if _, err := r.ReadSlice('\n'); err != nil {
			return err
		}
	}
	return nil
}

func (p *redis) next(_ net.Conn, r *bufio.Reader) ([]byte, error) {
	for range 5 { // *3 $7 message $n topic
		if _, err := r.ReadSlice('\n'); err != nil {
			return nil, err
		}
	}
	head, err := r.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(string(bytes.TrimSpace(bytes.TrimPrefix(head, []byte("$")))))
	if err != nil {
		return nil, fmt.Errorf("not a bulk string: %q", head)
	}
	return take(r, n)
}

func (p *redis) publisher(ctx context.Context) (source, error) {
	return newText(ctx, p.c.addr, p.c.size, func(dst, payload []byte) []byte {
		dst = fmt.Appendf(dst, "*3\r\n$7\r\nPUBLISH\r\n$%d\r\n%s\r\n$%d\r\n", len(p.c.topic), p.c.topic, len(payload))
		return append(append(dst, payload...), "\r\n"...)
	})
}

// natsText speaks the NATS client protocol.
type natsText struct{ c *config }

const natsConnect = "CONNECT {\"verbose\":false,\"pedantic\":false,\"echo\":false}\r\n"

func (p *natsText) subject() string { return strings.ReplaceAll(p.c.topic, "/", ".") }

func (p *natsText) join(conn net.Conn, r *bufio.Reader, _ int) error {
	if _, err := fmt.Fprintf(conn, "%sSUB %s 1\r\nPING\r\n", natsConnect, p.subject()); err != nil {
		return err
	}
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if bytes.HasPrefix(line, []byte("PONG")) {
			return nil
		}
	}
}

func (p *natsText) next(conn net.Conn, r *bufio.Reader) ([]byte, error) {
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		switch {
		case bytes.HasPrefix(line, []byte("MSG ")):
			fields := bytes.Fields(line)
			n, err := strconv.Atoi(string(fields[len(fields)-1]))
			if err != nil {
				return nil, fmt.Errorf("not a message: %q", line)
			}
			return take(r, n)
		case bytes.HasPrefix(line, []byte("PING")):
			if _, err := io.WriteString(conn, "PONG\r\n"); err != nil {
				return nil, err
			}
		case bytes.HasPrefix(line, []byte("-ERR")):
			return nil, fmt.Errorf("%s", bytes.TrimSpace(line))
		}
	}
}

func (p *natsText) publisher(ctx context.Context) (source, error) {
	t, err := newText(ctx, p.c.addr, p.c.size, func(dst, payload []byte) []byte {
		dst = fmt.Appendf(dst, "PUB %s %d\r\n", p.subject(), len(payload))
		return append(append(dst, payload...), "\r\n"...)
	})
	if err != nil {
		return nil, err
	}
	_, err = io.WriteString(t.conn, natsConnect)
	return t, err
}

// take reads n bytes and the line end behind them.
func take(r *bufio.Reader, n int) ([]byte, error) {
	b, err := r.Peek(n + 2)
	if err != nil {
		return nil, err
	}
	_, err = r.Discard(n + 2)
	return b[:n], err
}

// stampOf finds the time in a payload or in a frame that holds one.
func stampOf(b []byte) (time.Time, bool) {
	at := bytes.Index(b, []byte(publisher.Mark))
	if at < 0 || len(b) < at+publisher.StampSize {
		return time.Time{}, false
	}
	nanos, err := strconv.ParseUint(string(b[at+len(publisher.Mark):at+publisher.StampSize]), 16, 64)
	if err != nil {
		return time.Time{}, false
	}
	return time.Unix(0, int64(nanos)), true
}
