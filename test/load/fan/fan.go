// Package fan drives messages through a server to all of its subscribers and says what that cost
// the server.
package fan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/test/load/procfs"
	"github.com/pushmesh/pushmesh/test/load/swarm"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// Source publishes n messages at once; the answers of the server are not waited for.
type Source interface {
	Publish(n int) error
	Close() error
}

// Out is a server with its subscribers and a publisher.
type Out struct {
	Name   string
	PIDs   []int // of the server
	Conns  int   // in the swarm
	Swarm  *swarm.Swarm
	Source Source
	// Patience is how long nothing at all may arrive before messages count as missing; 0: 20 s.
	Patience time.Duration
}

// Sample is what one measurement found.
type Sample struct {
	Deliveries int
	CPU, Wall  time.Duration
}

// PerDelivery is the server's CPU, in µs.
func (s Sample) PerDelivery() float64 { return s.CPU.Seconds() * 1e6 / float64(s.Deliveries) }

// Rate is deliveries per second.
func (s Sample) Rate() float64 { return float64(s.Deliveries) / s.Wall.Seconds() }

// Pump keeps window messages in flight for a while and then waits for the last. New ones go out in
// halves of a window, each as one batch, as soon as every subscriber has the half before: so a
// server always has work, and gets it in bulk.
func (o *Out) Pump(ctx context.Context, window int, span time.Duration) (_ Sample, err error) {
	defer try.Catch(&err)
	o.Swarm.Restart()
	cpu := try.Get(procfs.CPU(o.PIDs...))
	began := time.Now()
	sent, err := o.publish(ctx, window, began.Add(span))
	if err == nil {
		o.Swarm.Await(sent)
		err = o.wait()
	}
	wall := time.Since(began)
	if err = errors.Join(err, ctx.Err()); err != nil {
		return Sample{}, fmt.Errorf("%s, window %d: %w", o.Name, window, err)
	}
	after, err := procfs.CPU(o.PIDs...)
	return Sample{Deliveries: sent * o.Conns, CPU: after - cpu, Wall: wall}, err
}

// publish says how many messages it sent until the end.
func (o *Out) publish(ctx context.Context, window int, end time.Time) (sent int, err error) {
	defer try.Catch(&err)
	half := (window + 1) / 2
	for n := window; ; n = half {
		try.Do(o.Source.Publish(n))
		sent += n
		if !time.Now().Before(end) || ctx.Err() != nil {
			return sent, nil
		}
		o.Swarm.Await(sent - window + half)
		try.Do(o.wait())
	}
}

func (o *Out) wait() error { return o.Swarm.Until(cmp.Or(o.Patience, time.Minute)) }
