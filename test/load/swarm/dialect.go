package swarm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// Kind of a frame, as far as a swarm cares.
type Kind uint8

// Kinds of frames.
const (
	Other   Kind = iota
	Message      // a delivery
	Ready        // a subscription is in place
	Asked        // the server wants a sign of life
	Alive        // the answer to a ping
)

// Dialect is what a swarm must know of a protocol. It holds no state of connections.
type Dialect interface {
	// Hello is what connection n writes first, and how many Ready frames answer it.
	Hello(n int) (b []byte, ready int)
	// Next tells the size and kind of the frame that b begins with; size 0: b holds only a part of
	// it.
	Next(b []byte) (size int, kind Kind, err error)
	// Ping is a frame that asks for a sign of life; nil where the protocol has none.
	Ping() []byte
	// Pong answers Asked.
	Pong() []byte
}

// quiet is a protocol in which neither end asks the other for a sign of life.
type quiet struct{}

// Ping is nothing.
func (quiet) Ping() []byte { return nil }

// Pong is nothing.
func (quiet) Pong() []byte { return nil }

// Push is this project's own protocol.
type Push struct {
	quiet
	// Topics that connection n subscribes to.
	Topics func(n int) []string
	// HeartbeatMs that clients promise.
	HeartbeatMs uint32
}

// Never is a heartbeat in milliseconds that is longer than any measurement: none falls due.
const Never = 600_000

// Subscribe is Push where everybody subscribes to the same topics and needs no heartbeat.
func Subscribe(topics ...string) *Push {
	return &Push{Topics: func(int) []string { return topics }, HeartbeatMs: Never}
}

// Hello writes Hello and every Subscribe at once, which the protocol allows.
func (p *Push) Hello(n int) ([]byte, int) {
	b, err := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{
		Version: wire.Version, ClientId: fmt.Sprintf("load-%d", n), HeartbeatMs: p.HeartbeatMs,
	})
	topics := p.Topics(n)
	for i, topic := range topics {
		if err == nil {
			b, err = wire.Append(b, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: uint32(i + 1), Filter: topic})
		}
	}
	if err != nil {
		panic(err) // topics come from the program itself
	}
	return b, len(topics)
}

// Next reads a header; bodies are left encoded.
func (p *Push) Next(b []byte) (int, Kind, error) {
	n, t, ok := wire.Header(b)
	size := wire.HeaderSize + n
	if !ok || len(b) < size {
		return 0, Other, nil
	}
	switch t {
	case wirev1.FrameType_FRAME_TYPE_MESSAGE:
		return size, Message, nil
	case wirev1.FrameType_FRAME_TYPE_SUBSCRIBED:
		return size, Ready, nil
	case wirev1.FrameType_FRAME_TYPE_PONG:
		return size, Alive, nil
	case wirev1.FrameType_FRAME_TYPE_ERROR, wirev1.FrameType_FRAME_TYPE_GO_AWAY, wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED:
		return size, Other, fmt.Errorf("got %v %q", t, b[wire.HeaderSize:size])
	}
	return size, Other, nil
}

// Ping is a Ping with some time in it.
func (p *Push) Ping() []byte { return []byte{0, 0, 9, 0x0a, 0x09, 1, 2, 3, 4, 5, 6, 7, 8} }

// Bare is the protocol of bare.c: messages are Size bytes that begin with '@'.
type Bare struct {
	quiet
	Size int
}

// Hello subscribes.
func (p *Bare) Hello(int) ([]byte, int) { return []byte("s"), 1 }

// Next tells the answer to Hello from a message.
func (p *Bare) Next(b []byte) (int, Kind, error) {
	switch {
	case b[0] == 's':
		return 1, Ready, nil
	case b[0] != '@':
		return 0, Other, fmt.Errorf("not at the beginning of a message: %q", b[:1])
	case len(b) < p.Size:
		return 0, Other, nil
	}
	return p.Size, Message, nil
}

// MQTT is version 3.1.1 with QoS 0.
type MQTT struct {
	quiet
	Topic string
}

// packet makes a packet with a body of less than 16 KiB.
func packet(kind byte, body []byte) []byte {
	return append(append([]byte{kind}, binary.AppendUvarint(nil, uint64(len(body)))...), body...)
}

func text(s string) []byte { return append(binary.BigEndian.AppendUint16(nil, uint16(len(s))), s...) }

// Hello writes CONNECT and SUBSCRIBE.
func (p *MQTT) Hello(n int) ([]byte, int) {
	connect := append(text("MQTT"), 4, 2, 0, 0) // clean session, no keep-alive
	connect = append(connect, text(fmt.Sprintf("load-%d", n))...)
	subscribe := append(append([]byte{0, 1}, text(p.Topic)...), 0)
	return append(packet(0x10, connect), packet(0x82, subscribe)...), 1
}

// maxMQTT is the most that the remaining length of a packet can say.
const maxMQTT = 268_435_455

// Next reads a fixed header.
func (p *MQTT) Next(b []byte) (int, Kind, error) {
	n, width := binary.Uvarint(b[1:])
	if width < 0 || n > maxMQTT {
		return 0, Other, fmt.Errorf("a packet of %d bytes", n)
	}
	size := 1 + width + int(n)
	if width == 0 || len(b) < size {
		return 0, Other, nil
	}
	switch b[0] >> 4 {
	case 2:
		if n != 2 {
			return size, Other, fmt.Errorf("CONNACK of %d bytes", n)
		}
		if b[3] != 0 {
			return size, Other, fmt.Errorf("refused with %d", b[3])
		}
	case 3:
		return size, Message, nil
	case 9:
		return size, Ready, nil
	case 13:
		return size, Alive, nil
	}
	return size, Other, nil
}

// Ping is PINGREQ.
func (p *MQTT) Ping() []byte { return []byte{0xc0, 0} }

// Lines is a protocol of text lines in which every message begins alike because topic and size are.
type Lines struct {
	hello, head, ping string
	size              int // of a message
	line              func(line []byte) (Kind, error)
}

// Redis speaks RESP2.
func Redis(topic string, size int) *Lines {
	head := fmt.Sprintf("*3\r\n$7\r\nmessage\r\n$%d\r\n%s\r\n$%d\r\n", len(topic), topic, size)
	return &Lines{
		hello: "SUBSCRIBE " + topic + "\r\n", head: head, size: len(head) + size + 2, ping: "PING\r\n",
		line: func(line []byte) (Kind, error) {
			switch {
			case line[0] == ':':
				return Ready, nil
			case bytes.HasPrefix(line, []byte("pong")):
				return Alive, nil
			case line[0] == '-':
				return Other, fmt.Errorf("%q", line)
			}
			return Other, nil
		},
	}
}

// NATS speaks the client protocol of nats-server.
func NATS(topic string, size int) *Lines {
	subject := strings.ReplaceAll(topic, "/", ".")
	head := fmt.Sprintf("MSG %s 1 %d\r\n", subject, size)
	return &Lines{
		hello: "CONNECT {\"verbose\":false,\"pedantic\":false}\r\nSUB " + subject + " 1\r\nPING\r\n",
		head:  head, size: len(head) + size + 2, ping: "PING\r\n",
		line: func(line []byte) (Kind, error) {
			switch {
			case bytes.HasPrefix(line, []byte("PONG")):
				return Ready, nil // which also answers a ping
			case bytes.HasPrefix(line, []byte("PING")):
				return Asked, nil
			case line[0] == '-':
				return Other, fmt.Errorf("%q", line)
			}
			return Other, nil
		},
	}
}

// Hello subscribes.
func (p *Lines) Hello(int) ([]byte, int) { return []byte(p.hello), 1 }

// Next knows messages by their head and takes the rest line by line.
func (p *Lines) Next(b []byte) (int, Kind, error) {
	k := min(len(p.head), len(b))
	if string(b[:k]) == p.head[:k] {
		if len(b) < p.size {
			// "*" may yet become something else than a message: wait for more either way.
			return 0, Other, nil
		}
		return p.size, Message, nil
	}
	end := bytes.IndexByte(b, '\n') + 1
	if end == 0 {
		return 0, Other, nil
	}
	kind, err := p.line(b[:end])
	return end, kind, err
}

// Ping asks the server.
func (p *Lines) Ping() []byte { return []byte(p.ping) }

// Pong answers it.
func (p *Lines) Pong() []byte { return []byte("PONG\r\n") }
