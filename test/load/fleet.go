package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// perSource is how many connections come from one address of 127.0.1.x: ports of one pair of addresses are finite.
const perSource = 10_000

// sampled connections measure latency: every one of so many.
const sampled = 50

// fleet is all subscribers. Each owns a goroutine that reads; received counts what they all got.
type fleet struct {
	c     *config
	p     protocol
	conns []*member

	received atomic.Int64
	progress chan struct{} // has room for one: a message has reached everyone, or a reader failed
	failed   atomic.Pointer[error]
	readers  sync.WaitGroup
}

type member struct {
	conn    net.Conn
	r       *bufio.Reader
	got     int
	latency []time.Duration // of sampled ones; its reader owns it
}

func newFleet(c *config, p protocol) *fleet {
	return &fleet{c: c, p: p, conns: make([]*member, c.conns), progress: make(chan struct{}, 1)}
}

// connect opens and joins every connection, some at a time, and sets their readers going unless they are to stay idle.
func (f *fleet) connect(ctx context.Context) error {
	const atOnce = 64
	work := make(chan int)
	errs := make(chan error, atOnce)
	for range atOnce {
		go func() {
			var err error
			for n := range work {
				if err == nil {
					err = f.dial(ctx, n)
				}
			}
			errs <- err
		}()
	}
	for n := range f.conns {
		work <- n
	}
	close(work)
	var failed error
	for range atOnce {
		if err := <-errs; err != nil {
			failed = err // one tells enough
		}
	}
	if failed != nil {
		return failed
	}
	if !f.c.idle {
		for n, m := range f.conns {
			f.readers.Go(func() { f.read(m, n%sampled == 0) })
		}
	}
	return nil
}

func (f *fleet) dial(ctx context.Context, n int) error {
	d := net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+n/perSource))}}
	conn, err := d.DialContext(ctx, "tcp", f.c.addr)
	if err != nil {
		return fmt.Errorf("connection %d: %w", n, err)
	}
	size := 64 << 10
	if f.c.idle {
		size = 4 << 10
	}
	m := &member{conn: conn, r: bufio.NewReaderSize(conn, size)}
	f.conns[n] = m
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if err := f.p.join(conn, m.r, n); err != nil {
		return fmt.Errorf("connection %d: %w", n, err)
	}
	return nil
}

func (f *fleet) read(m *member, sample bool) {
	for m.got < f.c.msgs {
		payload, err := f.p.next(m.conn, m.r)
		if err != nil {
			err = fmt.Errorf("after %d messages: %w", m.got, err)
			f.failed.CompareAndSwap(nil, &err)
			f.tell()
			return
		}
		m.got++
		if sample {
			if at, ok := stampOf(payload); ok {
				m.latency = append(m.latency, time.Since(at))
			}
		}
		if f.received.Add(1)%int64(f.c.conns) == 0 {
			f.tell()
		}
	}
}

func (f *fleet) tell() {
	select {
	case f.progress <- struct{}{}:
	default:
	}
}

// everywhere is how many messages all connections together have got, as whole messages: with a window of one exactly those that
// reached everyone.
func (f *fleet) everywhere() (int, error) {
	if err := f.failed.Load(); err != nil {
		return 0, *err
	}
	return int(f.received.Load()) / f.c.conns, nil
}

// latencies of all sampled deliveries, sorted; only once everything was received.
func (f *fleet) latencies() []time.Duration {
	f.readers.Wait()
	var all []time.Duration
	for _, m := range f.conns {
		all = append(all, m.latency...)
	}
	slices.Sort(all)
	return all
}

func (f *fleet) close() {
	for _, m := range f.conns {
		if m != nil {
			_ = m.conn.Close()
		}
	}
	f.readers.Wait()
}
