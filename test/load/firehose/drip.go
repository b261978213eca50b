package firehose

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Drip publishes one message at a time over a PublishStream of its own, with a system call for each
// and no goroutine: what it costs to publish is then the servers'. It speaks just the HTTP/2 that
// this takes. All methods are called by one goroutine.
type Drip struct {
	link
	frames   []*frame // by topic
	sent     uint64
	answered uint64
	out      []byte
}

// NewDrip connects to a router and opens the stream. Topics and size are those of the messages to
// come.
func NewDrip(ctx context.Context, addr string, topics []string, size int) (*Drip, error) {
	d := &Drip{}
	if err := d.open(ctx, addr, pushmeshv1.PublishService_PublishStream_FullMethodName); err != nil {
		return nil, fmt.Errorf("drip: %w", err)
	}
	for _, topic := range topics {
		d.frames = append(d.frames, newFrame([]string{topic}, [][]byte{make([]byte, size)}))
	}
	return d, nil
}

// Publish sends a message to a topic, by its place; fill writes its payload.
func (d *Drip) Publish(topic int, fill func(payload []byte)) error {
	f := d.frames[topic]
	d.sent++
	f.number(d.sent)
	fill(f.payloads[0])
	for !d.room(len(f.bytes)) {
		if err := d.await(unix.POLLIN, time.Now().Add(patience)); err != nil {
			return fmt.Errorf("drip: no room for message %d: %w", d.sent, err)
		}
		if err := d.Poll(); err != nil {
			return err
		}
	}
	d.out = appendMessage(d.out[:0], f.bytes)
	return d.write(d.out)
}

// Poll takes the answers that are there.
func (d *Drip) Poll() error { return d.read(d.take) }

// take counts the results of one answer; a refusal is an error.
func (d *Drip) take(answer []byte) error {
	return Results(answer, func(ref uint64, code wirev1.Code, text []byte) error {
		if code != 0 {
			return fmt.Errorf("drip: message %d was refused: code %d %s", ref, int32(code), text)
		}
		d.answered++
		return nil
	})
}

// Wait waits until every message was answered.
func (d *Drip) Wait(ctx context.Context) error {
	for until := time.Now().Add(patience); d.answered < d.sent; {
		if err := errors.Join(ctx.Err(), d.await(unix.POLLIN, until)); err != nil {
			return fmt.Errorf("drip: %d of %d messages were answered: %w", d.answered, d.sent, err)
		}
		if err := d.Poll(); err != nil {
			return err
		}
	}
	return nil
}
