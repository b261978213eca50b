// Package flow is broadcasts in an open loop: messages leave when they are due, whatever became of
// those before, and a late one counts from when it was due.
package flow

import (
	"context"
	"errors"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pushmesh/pushmesh/test/load/publisher"
	"github.com/pushmesh/pushmesh/test/load/swarm"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// Source publishes messages that carry the time at which they were due.
type Source interface {
	PublishTo(topics []string, at time.Time) error
	Close() error
}

// Flow is subscribers, and what publishes to them.
type Flow struct {
	Swarm *swarm.Swarm
	// Topics take turns, and each subscriber has one of them.
	Topics    []string
	PerSecond float64 // messages
	Source    func(ctx context.Context) (Source, error)
	// First has the threads of the load be first in line for a core, where that is allowed: clients
	// are elsewhere.
	First bool
	// Took is the time of each delivery that counts.
	Took   []time.Duration
	counts bool
}

// Dial connects the subscribers.
func (f *Flow) Dial(ctx context.Context, cfg swarm.Config) (err error) {
	cfg.Message = func(_ int, frame []byte) {
		if at, ok := publisher.Stamped(frame); ok && f.counts {
			f.Took = append(f.Took, time.Since(at))
		}
	}
	f.Swarm, err = swarm.Dial(ctx, cfg)
	return err
}

// Broadcast is a flow of one topic from a router to subscribers of an edge.
func Broadcast(ctx context.Context, router, edge, topic string, conns int, perSecond float64) (*Flow, error) {
	f := &Flow{Topics: []string{topic}, PerSecond: perSecond}
	f.Source = func(ctx context.Context) (Source, error) { return publisher.New(ctx, router, topic, 128) }
	return f, f.Dial(ctx, swarm.Config{Addr: edge, Conns: conns, Dialect: swarm.Subscribe(topic)})
}

// Run publishes for a while that does not count, and for a span that does, and gives how many
// messages there were.
func (f *Flow) Run(ctx context.Context, warm, span time.Duration) (sent int, err error) {
	defer try.Catch(&err)
	if f.First {
		first(-20)
		defer first(0)
	}
	f.Took, f.counts = f.Took[:0], false
	before := try.Get(f.publish(ctx, warm))
	f.counts = true
	sent, err = f.publish(ctx, span)
	f.counts = false
	if err == nil && len(f.Took) == 0 {
		err = errors.New("nothing was delivered")
	}
	return before + sent, err
}

func first(rank int) { _ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), rank) }

func (f *Flow) publish(ctx context.Context, span time.Duration) (total int, err error) {
	defer try.Catch(&err)
	src := try.Get(f.Source(ctx))
	n := len(f.Topics)
	total = max(1, int(f.PerSecond*span.Seconds())/n) * n
	f.Swarm.Restart()
	f.Swarm.Await(total / n)
	sent := make(chan error, 1)
	go func() {
		if f.First {
			// not unlocked: the thread ends with the goroutine, and its rank with it
			runtime.LockOSThread()
			first(-20)
		}
		sent <- Due(ctx, total, f.PerSecond, Yield, func(i int, at time.Time) error {
			return src.PublishTo(f.Topics[i%n:i%n+1], at)
		})
	}()
	err = f.Swarm.Until(30 * time.Second)
	return total, errors.Join(err, <-sent, src.Close())
}

// Raw and Yield sleep, less where a signal comes. A raw sleeper keeps its processor: it suits who
// has no other goroutine, and does not wake the runtime's monitor.
func Raw(d *unix.Timespec) {
	_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(d)), 0, 0)
}

// Yield is what sleeps beside other goroutines.
func Yield(d *unix.Timespec) { _ = unix.Nanosleep(d, nil) }

// Sleep sleeps until a time. Go's own timers may be a millisecond late where nothing else goes on,
// or where all processors are at work: that would be measured as the servers'.
func Sleep(at time.Time, sleep func(*unix.Timespec)) {
	for wait := time.Until(at); wait > 0; wait = time.Until(at) {
		rest := unix.NsecToTimespec(int64(wait))
		sleep(&rest)
	}
}

// Due calls do so many times, each when it is due.
func Due(ctx context.Context, total int, perSecond float64, sleep func(*unix.Timespec), do func(n int, at time.Time) error) (err error) {
	defer try.Catch(&err)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// The kernel wakes a thread up to 50 µs late, to save power, unless it is asked not to.
	try.Do(unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0))
	began := time.Now()
	for n := range total {
		at := began.Add(time.Duration(float64(n) / perSecond * float64(time.Second)))
		Sleep(at, sleep)
		try.Do(errors.Join(do(n, at), ctx.Err()))
	}
	return nil
}
