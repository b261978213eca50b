package postgres

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
)

// producers append to a topic each, one message after the other, whatever the answers are.
type producers struct {
	log  *backendtest.Log
	wg   sync.WaitGroup
	stop chan struct{}

	mu    sync.Mutex
	acked map[string][]string // bodies by topic
	codes map[wirev1.Code]int
	last  time.Time // of an OK
	fast  int       // refusals within 50 ms
	more  chan struct{}
}

func produce(t *testing.T, log *backendtest.Log, n int) *producers {
	t.Helper()
	p := &producers{log: log, stop: make(chan struct{}), acked: map[string][]string{}, codes: map[wirev1.Code]int{}, more: make(chan struct{})}
	for i := range n {
		p.wg.Go(func() { p.run(t, fmt.Sprint("room/", i)) })
	}
	return p
}

func (p *producers) run(t *testing.T, topic string) {
	for i := 0; ; i++ {
		select {
		case <-p.stop:
			return
		default:
		}
		begun := time.Now()
		body := fmt.Sprint(i)
		r := p.log.Append(t, backendtest.Item(topic, body))[0]
		p.note(topic, body, r, time.Since(begun))
		if r.GetRetryAfterMs() > 0 {
			select {
			case <-p.stop:
				return
			case <-time.After(time.Duration(r.GetRetryAfterMs()) * time.Millisecond / 10):
			}
		}
	}
}

func (p *producers) note(topic, body string, r *meshv1.AppendResult, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.codes[r.GetCode()]++
	switch {
	case r.GetCode() == wirev1.Code_CODE_OK:
		p.acked[topic], p.last = append(p.acked[topic], body), time.Now()
	case r.GetCode() == wirev1.Code_CODE_UNAVAILABLE && r.GetRetryAfterMs() > 0 && took < 50*time.Millisecond:
		p.fast++
	}
	close(p.more)
	p.more = make(chan struct{})
}

// until waits for cond of what was noted.
func (p *producers) until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(backendtest.Patience)
	for {
		p.mu.Lock()
		ok, more := cond(), p.more
		p.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-more:
		case <-deadline:
			p.mu.Lock()
			defer p.mu.Unlock()
			t.Fatalf("never: %s; answers %v", what, p.codes)
		}
	}
}

// goesOn waits until appends succeed after Postgres is back, and says when they did.
func (p *producers) goesOn(t *testing.T, since time.Time) time.Duration {
	t.Helper()
	p.until(t, "appends go on", func() bool { return p.last.After(since) })
	p.mu.Lock()
	defer p.mu.Unlock()
	t.Logf("appends went on %s after Postgres was back; answers %v", p.last.Sub(since).Round(time.Millisecond), p.codes)
	p.fast = 0
	return p.last.Sub(since)
}

// end checks that everything acknowledged is in the log, in order.
func (p *producers) end(t *testing.T) {
	t.Helper()
	close(p.stop)
	p.wg.Wait()
	for c := range p.codes {
		if !slices.Contains([]wirev1.Code{wirev1.Code_CODE_OK, wirev1.Code_CODE_UNAVAILABLE, wirev1.Code_CODE_INTERNAL, wirev1.Code_CODE_CONFLICT}, c) {
			t.Errorf("%d appends were answered %v", p.codes[c], c)
		}
	}
	total := 0
	for topic, acked := range p.acked {
		total += len(acked)
		stored := p.log.Bodies(t, topic)
		for _, body := range stored { // acked is a subsequence of what is stored
			if len(acked) > 0 && acked[0] == body {
				acked = acked[1:]
			}
		}
		if len(acked) > 0 {
			t.Errorf("%s: %d acknowledged messages are not in the log, the first is %q", topic, len(acked), acked[0])
		}
	}
	t.Logf("%d acknowledged, all there; answers %v", total, p.codes)
}

// forget the answers so far.
func (p *producers) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.codes)
}

// onlyOK says what else was answered.
func (p *producers) onlyOK() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.codes) > 1 || p.codes[wirev1.Code_CODE_OK] == 0 {
		return fmt.Errorf("appends were answered %v", p.codes)
	}
	return nil
}

// some is n further OKs from now on.
func some(p *producers, n int) func() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.codes[wirev1.Code_CODE_OK]
	return func() bool { return p.codes[wirev1.Code_CODE_OK] >= before+n }
}

// pulse asks whether the database answers, as a store does all the time: writers that have
// connected and are refused appends would not find the end of an outage by themselves.
func pulse(t *testing.T, d *DB) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var asking sync.WaitGroup
	asking.Go(func() {
		for tick := time.NewTicker(200 * time.Millisecond); ; {
			_ = d.Ping(ctx) // it fails while there is no server
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
		}
	})
	t.Cleanup(func() {
		stop()
		asking.Wait()
	})
}

// The whole log of a store, with all its shards, over a Postgres that is killed and one that hangs.
func TestAStoresLogOverACrashAndAHang(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t)
	d := openWith(t, Config{URL: server.URL()})
	pulse(t, d)
	log := backendtest.OpenLog(t, d, owner("a"), 2, time.Now, backendtest.Stalling)
	log.WaitReady(t)
	p := produce(t, log, 6)
	p.until(t, "100 appended", some(p, 100))

	soon(t, func() time.Duration {
		need(t, server.Kill())
		p.until(t, "fast refusals while Postgres is dead", func() bool { return p.fast >= 20 })
		need(t, server.Restart())
		return p.goesOn(t, time.Now())
	})
	p.until(t, "100 more appended", some(p, 100))
	soon(t, func() time.Duration {
		need(t, server.Pause())
		p.until(t, "fast refusals while Postgres hangs", func() bool { return p.fast >= 20 })
		need(t, server.Resume())
		return p.goesOn(t, time.Now())
	})

	p.until(t, "100 more appended", some(p, 100))
	p.end(t)
}
