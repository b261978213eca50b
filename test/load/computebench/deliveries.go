package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/publisher"
	"github.com/pushmesh/pushmesh/test/load/swarm"
	"github.com/pushmesh/pushmesh/test/load/table"
)

const (
	fanTopic = "bench/fan"
	// fanSubs get fanRate messages a second: light work, of which each is timed.
	fanSubs, fanRate, fanSize = 200, 100, 128
	fanWarmUp                 = time.Second
)

// fan is an open loop of messages to an edge's subscribers, in a goroutine that the kernel prefers
// where that is allowed: clients are elsewhere.
type fan struct {
	router  string
	swarm   *swarm.Swarm
	took    []time.Duration
	counted bool
}

func dialFan(ctx context.Context, router, edge string) (f *fan, err error) {
	f = &fan{router: router}
	f.swarm, err = swarm.Dial(ctx, swarm.Config{Addr: edge, Conns: fanSubs, Message: f.message, Dialect: &swarm.Push{
		Topics: func(int) []string { return []string{fanTopic} }, HeartbeatMs: 600_000,
	}})
	return f, err
}

func (f *fan) message(_ int, frame []byte) {
	if at, ok := publisher.Stamped(frame); ok && f.counted {
		f.took = append(f.took, time.Since(at))
	}
}

// p99 of deliveries, from when their message was due, in ms.
func (f *fan) p99(ctx context.Context, span time.Duration) (float64, error) {
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -20)
	defer func() { _ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 0) }()
	f.took, f.counted = f.took[:0], false
	if err := f.publish(ctx, fanWarmUp); err != nil {
		return 0, err
	}
	f.counted = true
	err := f.publish(ctx, span)
	if err == nil && len(f.took) == 0 {
		err = errors.New("nothing was delivered")
	}
	return table.Quantile(f.took, .99), err
}

func (f *fan) publish(ctx context.Context, span time.Duration) error {
	p, err := publisher.New(ctx, f.router, fanTopic, fanSize)
	if err != nil {
		return err
	}
	total := max(1, int(span.Seconds()*fanRate))
	f.swarm.Restart()
	f.swarm.Await(total)
	sent := make(chan error, 1)
	go func() {
		// not unlocked: the thread ends with the goroutine, and its rank with it
		runtime.LockOSThread()
		_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -20)
		sent <- due(total, time.Second/fanRate, func(at time.Time) error { return errors.Join(p.PublishTo([]string{fanTopic}, at), ctx.Err()) })
	}()
	err = f.swarm.Until(30 * time.Second)
	return errors.Join(err, <-sent, p.Close())
}

// due calls do so many times, each when it is due: Go's own timers may be late.
func due(times int, every time.Duration, do func(at time.Time) error) error {
	began := time.Now()
	for n := range times {
		at := began.Add(time.Duration(n) * every)
		for wait := time.Until(at); wait > 0; wait = time.Until(at) {
			rest := unix.NsecToTimespec(int64(wait))
			_ = unix.Nanosleep(&rest, nil) // a signal may cut it short
		}
		if err := do(at); err != nil {
			return err
		}
	}
	return nil
}

// lag of the worst loop's last 100 samples, in ms.
type lag struct{ p99, most float64 }

func edgeLag(ctx context.Context, p *local.Process) (l lag, err error) {
	all, err := figures(ctx, p)
	if err != nil {
		return l, err
	}
	for to, quantile := range map[*float64]string{&l.p99: "0.99", &l.most: "1"} {
		v, ok := all[fmt.Sprintf(`pushmesh_edge_loop_lag_seconds{of="last_100",quantile="%s"}`, quantile)]
		if !ok {
			return l, fmt.Errorf("%s does not tell its lag", p.Name)
		}
		*to = v * 1000
	}
	return l, nil
}
