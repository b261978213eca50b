package publisher

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// Plain publishes over a plain connection whose answers are thrown away.
type Plain struct {
	conn  net.Conn
	size  int
	frame func(dst, payload []byte) []byte
	ended chan struct{}
}

func dial(ctx context.Context, addr, hello string, size int, frame func(dst, payload []byte) []byte) (*Plain, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("publisher: %w", err)
	}
	p := &Plain{conn: conn, size: max(size, StampSize), frame: frame, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		_, _ = io.Copy(io.Discard, conn) // ends with the connection
	}()
	_, err = io.WriteString(conn, hello)
	return p, err
}

// Bare publishes to bare.c.
func Bare(ctx context.Context, addr string, size int) (*Plain, error) {
	return dial(ctx, addr, "p", size, func(dst, payload []byte) []byte { return append(dst, payload...) })
}

// Redis publishes with PUBLISH.
func Redis(ctx context.Context, addr, topic string, size int) (*Plain, error) {
	return dial(ctx, addr, "", size, func(dst, payload []byte) []byte {
		dst = fmt.Appendf(dst, "*3\r\n$7\r\nPUBLISH\r\n$%d\r\n%s\r\n$%d\r\n", len(topic), topic, len(payload))
		return append(append(dst, payload...), "\r\n"...)
	})
}

// NATS publishes with PUB.
func NATS(ctx context.Context, addr, topic string, size int) (*Plain, error) {
	subject := strings.ReplaceAll(topic, "/", ".")
	return dial(ctx, addr, "CONNECT {\"verbose\":false,\"pedantic\":false}\r\n", size, func(dst, payload []byte) []byte {
		dst = fmt.Appendf(dst, "PUB %s %d\r\n", subject, len(payload))
		return append(append(dst, payload...), "\r\n"...)
	})
}

// MQTT publishes with QoS 0; topic and payload together stay below 16 KiB.
func MQTT(ctx context.Context, addr, topic string, size int) (*Plain, error) {
	const connect = "\x10\x15\x00\x04MQTT\x04\x02\x00\x00\x00\x09publisher"
	return dial(ctx, addr, connect, size, func(dst, payload []byte) []byte {
		n := 2 + len(topic) + len(payload)
		dst = append(dst, 0x30)
		if n > 127 {
			dst = append(dst, byte(n)|0x80, byte(n>>7))
		} else {
			dst = append(dst, byte(n))
		}
		dst = append(dst, byte(len(topic)>>8), byte(len(topic)))
		return append(append(dst, topic...), payload...)
	})
}

// Publish writes n messages at once.
func (p *Plain) Publish(n int) error { return p.publish(n, time.Now()) }

// PublishTo writes as many messages as there are topics, all to the topic of the connection,
// stamped with a time.
func (p *Plain) PublishTo(topics []string, at time.Time) error { return p.publish(len(topics), at) }

func (p *Plain) publish(n int, at time.Time) error {
	var out []byte
	payload := make([]byte, p.size)
	for range n {
		Stamp(payload, at)
		out = p.frame(out, payload)
	}
	_, err := p.conn.Write(out)
	return err
}

// Close closes the connection.
func (p *Plain) Close() error {
	err := p.conn.Close()
	<-p.ended
	return err
}
