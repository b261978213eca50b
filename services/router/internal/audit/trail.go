package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Bounds of what waits to be published, and of a try.
const (
	maxRecords = 4096
	maxBytes   = 8 << 20

	tryTimeout = 5 * time.Second
	firstPause = 50 * time.Millisecond
	maxPause   = time.Second
	// logTime is how long Tell waits for its line to be written.
	logTime = time.Second
	// restAbove records wait before who tells of another one waits as well, for restTime at most.
	restAbove = maxRecords / 2
	restTime  = 250 * time.Millisecond
	// drainTime is for how long Stop continues to publish.
	drainTime = 2 * time.Second
)

// Config of a Trail.
type Config struct {
	Router string
	// Run is the random number of this run of the router.
	Run uint64
	// Publish publishes a record, and returns once it is in the log of its topic; nil: records are
	// only in the router's log. Of several with the same key one is published.
	Publish func(ctx context.Context, topic string, record []byte, key string) error
	Log     *slog.Logger
	// Written waits until what was logged so far is written; nil: it is, at once.
	Written  func(ctx context.Context) bool
	Registry prometheus.Registerer
}

// Trail takes records. They are queued, published one after the other in the order in which they
// came, and again until that succeeds. Beyond the queue they are dropped and counted; the log has
// them all. It is a lifecycle.Part with a goroutine; Tell may be
// called by any.
type Trail struct {
	cfg    Config
	group  *lifecycle.Group
	wake   chan struct{} // 1: there is something to publish
	ending atomic.Bool   // the goroutine ends once the queue is empty
	done   chan struct{} // closed when the goroutine has ended

	published prometheus.Counter
	lost      *prometheus.CounterVec

	mu     sync.Mutex
	number uint64
	queue  []queued
	bytes  int
	over   bool          // nothing is published any more
	moved  chan struct{} // closed when one is published or refused; nil: nobody waits for that
}

type queued struct {
	topic, key string
	data       []byte
}

// New makes a Trail.
func New(cfg Config) *Trail {
	t := &Trail{cfg: cfg, wake: make(chan struct{}, 1), done: make(chan struct{})}
	t.published = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "pushmesh_router_audit_published_total", Help: "Changes by operators that were published on $audit.",
	})
	t.lost = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "pushmesh_router_audit_lost_total", Help: "Changes by operators that are in the log of the router and were not published on $audit, by code: QUEUE_FULL, too many waited; DRAINING, the router stopped; any other, it was refused.",
	}, []string{"code"})
	for _, c := range []wirev1.Code{wirev1.Code_CODE_QUEUE_FULL, wirev1.Code_CODE_DRAINING} {
		t.lost.WithLabelValues(code.Name(c))
	}
	if cfg.Registry != nil {
		cfg.Registry.MustRegister(t.published, t.lost, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "pushmesh_router_audit_waiting", Help: "Changes by operators that wait to be published on $audit.",
		}, func() float64 { return float64(t.Waiting()) }))
	}
	return t
}

// Tell writes a record, whose outcome is known, into the log, and queues it to be published. It
// waits for its line to be written, logTime at most where whoever reads the log stands still, and
// not for its publishing; but where very many wait for that, for restTime.
func (t *Trail) Tell(r *Record) {
	t.take(r)
	if t.cfg.Written != nil {
		ctx, cancel := context.WithTimeout(context.Background(), logTime)
		defer cancel()
		t.cfg.Written(ctx)
	}
	t.rest()
}

// rest waits while very many wait to be published, for restTime at most: who changes very much at a
// time, as all sessions of a mesh, is not faster than that.
func (t *Trail) rest() {
	late := time.NewTimer(restTime)
	defer late.Stop()
	for {
		t.mu.Lock()
		if t.over || len(t.queue) <= restAbove && t.bytes <= maxBytes/2 {
			t.mu.Unlock()
			return
		}
		if t.moved == nil {
			t.moved = make(chan struct{})
		}
		moved := t.moved
		t.mu.Unlock()
		select {
		case <-moved:
		case <-late.C:
			return
		}
	}
}

func (t *Trail) take(r *Record) {
	r.bound()
	r.Router, r.Run = t.cfg.Router, fmt.Sprintf("%016x", t.cfg.Run)
	if id, err := uuid.NewV7(); err == nil {
		r.ID = id.String()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.number++
	r.Number = t.number
	r.log(t.cfg.Log) // under the lock: numbers are in order there, too
	if t.cfg.Publish == nil {
		return
	}
	data, err := json.Marshal(r)
	switch {
	case err != nil:
		t.lose(wirev1.Code_CODE_INTERNAL, 1)
	case t.over:
		t.lose(wirev1.Code_CODE_DRAINING, 1)
	case len(t.queue) >= maxRecords || t.bytes >= maxBytes:
		t.lose(wirev1.Code_CODE_QUEUE_FULL, 1)
	default:
		t.queue = append(t.queue, queued{r.topic(), fmt.Sprintf("\x00audit/%s/%s/%d", r.Router, r.Run, r.Number), data})
		t.bytes += len(data)
		t.signal()
	}
}

func (t *Trail) lose(c wirev1.Code, n int) { t.lost.WithLabelValues(code.Name(c)).Add(float64(n)) }

func (t *Trail) signal() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Waiting is how many records wait to be published, that of a try under way included.
func (t *Trail) Waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.queue)
}

// Start begins to publish.
func (t *Trail) Start(context.Context) error {
	t.group = lifecycle.NewGroup(context.Background())
	t.group.Go("audit", t.run)
	return nil
}

// Stop goes on for drainTime, until nothing waits; what waits then is lost, and counted.
func (t *Trail) Stop(ctx context.Context) error {
	if t.group == nil {
		return nil
	}
	t.ending.Store(true)
	t.signal()
	late := time.NewTimer(drainTime)
	defer late.Stop()
	select {
	case <-t.done:
	case <-late.C:
	case <-ctx.Done():
	}
	err := t.group.Stop(ctx)
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	if n := t.Waiting(); n > 0 {
		t.lose(wirev1.Code_CODE_DRAINING, n)
		t.cfg.Log.Warn("records of changes are in this log alone: they could not be published on $audit before the router stopped", "records", n)
	}
	return err
}

func (t *Trail) run(ctx context.Context) {
	for {
		if first, some := t.first(); some {
			if !t.publish(ctx, first) {
				return
			}
			t.next(len(first.data))
			continue
		}
		if t.ending.Load() {
			close(t.done)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		}
	}
}

func (t *Trail) first() (queued, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) == 0 {
		return queued{}, false
	}
	return t.queue[0], true
}

// next takes the first away.
func (t *Trail) next(bytes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue[0] = queued{}
	if t.queue = t.queue[1:]; len(t.queue) == 0 {
		t.queue = nil
	}
	t.bytes -= bytes
	if t.moved != nil {
		close(t.moved)
		t.moved = nil
	}
}

// publish tries until a record is published or refused for good. It reports false where ctx ended
// first.
func (t *Trail) publish(ctx context.Context, q queued) bool {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		once, cancel := context.WithTimeout(ctx, tryTimeout)
		err := t.cfg.Publish(once, q.topic, q.data, q.key)
		cancel()
		switch c := code.Of(err); {
		case err == nil:
			t.published.Inc()
			return true
		case ctx.Err() != nil:
			return false
		case !retryable(c):
			t.lose(c, 1)
			t.cfg.Log.Error("the record of a change is in this log alone: publishing it was refused", "topic", q.topic, "error", err)
			return true
		}
		t.cfg.Log.Debug("the record of a change waits to be published again", "topic", q.topic, "error", err)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
		}
	}
}

// retryable reports whether a record that was answered with c is published again.
func retryable(c wirev1.Code) bool {
	return code.Retryable(c) || c == wirev1.Code_CODE_CANCELLED || c == wirev1.Code_CODE_OUT_OF_ORDER || c == wirev1.Code_CODE_CONFLICT || c == wirev1.Code_CODE_EPOCH_CHANGED
}
