// Package deadletter copies dead letters to the topics that their namespaces name for them, so that
// they can be subscribed to.
package deadletter

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/shardlog"
)

const (
	// tick bounds how late a letter is found that another store took in, or that could not be
	// copied before.
	tick = time.Second
	// perPage letters are read, and appended together.
	perPage = 64
	// stepTimeout bounds each question to the database.
	stepTimeout = 10 * time.Second
)

// Letters is what the database is asked (backend.DeadLetters).
type Letters interface {
	UncopiedLetters(ctx context.Context, after uint64, limit int) ([]*meshv1.DeadLetter, error)
	MarkLettersCopied(ctx context.Context, ids []uint64) error
}

// Config of a Copier.
type Config struct {
	Letters Letters
	// Ownerships writes for each shard a number that is 0 where it is not owned
	// (shardlog.Log.Ownerships).
	Ownerships func(dst []uint64)
	// Append appends and has the messages routed (dispatch.Dispatcher).
	Append   func(items []*meshv1.AppendItem, sink shardlog.Sink)
	Policies func() *policy.Table
	// Apart reports whether a shard's commits go to another database than the one with the letters,
	// and so mark none there; nil: never.
	Apart func(shard int) bool
	// Done is told of every letter that is copied, or is not to be, once that is stored; mostly
	// once. It must not block. nil: nobody is.
	Done     func(*meshv1.DeadLetter)
	Now      func() time.Time
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Copier is a lifecycle.Part. Its goroutine copies the letters whose dead-letter topic is in a
// shard that this store owns, a page at a time. The commit that appends a copy marks the letter.
// Where it can't (the shard is in another database, or a commit's outcome was unknown for a while)
// the copy's dedupe key keeps it from being appended again, and the letter is marked afterwards.
type Copier struct {
	cfg        Config
	copies     *prometheus.CounterVec
	group      *lifecycle.Group
	kick       chan struct{}
	ownerships []uint64 // the goroutine's own
}

// New makes a copier.
func New(cfg Config) *Copier {
	if cfg.Apart == nil {
		cfg.Apart = func(int) bool { return false }
	}
	if cfg.Done == nil {
		cfg.Done = func(*meshv1.DeadLetter) {}
	}
	return &Copier{cfg: cfg, kick: make(chan struct{}, 1), ownerships: make([]uint64, topic.Shards), copies: promauto.With(cfg.Registry).NewCounterVec(prometheus.CounterOpts{
		Name: "pushmesh_store_dead_letter_copies_total",
		Help: "Dead letters that were copied to their dead-letter topic, by code: OK; UNSUPPORTED, the topic is ephemeral, or the dead letter is a copy itself; any other code, the append was refused.",
	}, []string{"code"})}
}

// Start begins.
func (c *Copier) Start(context.Context) error {
	c.group = lifecycle.NewGroup(context.Background())
	c.group.Go("letters", c.run)
	return nil
}

// Stop ends it. Appends under way go on.
func (c *Copier) Stop(ctx context.Context) error { return c.group.Stop(ctx) }

// Added tells that there are new letters. It never blocks.
func (c *Copier) Added() {
	select {
	case c.kick <- struct{}{}:
	default: // it looks anyway
	}
}

func (c *Copier) run(ctx context.Context) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		if err := c.round(ctx); err != nil && ctx.Err() == nil {
			c.cfg.Logger.Warn("copying dead letters to their topics failed", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-c.kick:
		}
	}
}

// round goes once through the letters that are not copied.
func (c *Copier) round(ctx context.Context) error {
	if !c.owns() {
		return nil
	}
	for after := uint64(0); ; {
		page, err := c.read(ctx, after)
		if err != nil || len(page) == 0 {
			return err
		}
		marked, done := c.copy(ctx, page)
		c.tell(page, marked)
		if err := c.mark(ctx, done); err != nil {
			return err
		}
		c.tell(page, done)
		if after = page[len(page)-1].GetId(); len(page) < perPage {
			return nil
		}
	}
}

// owns looks which shards are this store's, and reports whether any is.
func (c *Copier) owns() bool {
	c.cfg.Ownerships(c.ownerships)
	for _, claim := range c.ownerships {
		if claim != 0 {
			return true
		}
	}
	return false
}

func (c *Copier) read(ctx context.Context, after uint64) ([]*meshv1.DeadLetter, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	return c.cfg.Letters.UncopiedLetters(ctx, after, perPage)
}

func (c *Copier) mark(ctx context.Context, ids []uint64) error {
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	return c.cfg.Letters.MarkLettersCopied(ctx, ids)
}

// tell says of letters, by id, that they are done with.
func (c *Copier) tell(page []*meshv1.DeadLetter, ids []uint64) {
	for _, l := range page {
		if slices.Contains(ids, l.GetId()) {
			c.cfg.Done(l)
		}
	}
}

// copy appends copies of letters, and says which letters the append marked, and which are done with
// but not marked.
func (c *Copier) copy(ctx context.Context, page []*meshv1.DeadLetter) (marked, done []uint64) {
	policies, now := c.cfg.Policies(), c.cfg.Now()
	var items []*meshv1.AppendItem
	for _, l := range page {
		if policies.Refuses(l.GetTopic()) != nil {
			continue // where it is to be copied is not known
		}
		item, why := copyOf(l, policies, now)
		switch {
		case why != wirev1.Code_CODE_OK && c.ownerships[topic.Shard(l.GetTopic())] == 0:
			// its owner says so
		case why != wirev1.Code_CODE_OK:
			c.copies.WithLabelValues(code.Name(why)).Inc()
			done = append(done, l.GetId())
		case c.ownerships[topic.Shard(item.GetTopic())] != 0: // else its owner copies it
			item.Ref = uint64(len(items) + 1)
			items = append(items, item)
		}
	}
	if len(items) == 0 {
		return nil, done
	}
	for _, r := range c.append(ctx, items) {
		item := items[r.GetRef()-1]
		switch again := c.settled(r); {
		case again:
			c.cfg.Logger.Debug("copying a dead letter failed; it is tried again", "code", code.Name(r.GetCode()), "error", r.GetError())
		case r.GetCode() != wirev1.Code_CODE_OK, r.GetDuplicate(), c.cfg.Apart(topic.Shard(item.GetTopic())):
			done = append(done, item.GetCopiedLetter())
		default:
			marked = append(marked, item.GetCopiedLetter())
		}
	}
	return marked, done
}

// settled counts a result that is final; again: the letter is to be tried in another round, or by
// another store.
func (c *Copier) settled(r *meshv1.AppendResult) (again bool) {
	if code.Retryable(r.GetCode()) || r.GetCode() == wirev1.Code_CODE_CONFLICT {
		return true
	}
	if !r.GetDuplicate() {
		c.copies.WithLabelValues(code.Name(r.GetCode())).Inc()
	}
	return false
}

// append waits for the results of all items; those that ctx's end overtakes are left out.
func (c *Copier) append(ctx context.Context, items []*meshv1.AppendItem) []*meshv1.AppendResult {
	a := &answers{want: len(items), all: make(chan struct{})}
	c.cfg.Append(items, a)
	select {
	case <-a.all:
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.got[:len(a.got):len(a.got)]
}

// answers is the sink of one page.
type answers struct {
	want int
	all  chan struct{} // closed when all are there

	mu  sync.Mutex
	got []*meshv1.AppendResult
}

// Results implements shardlog.Sink.
func (a *answers) Results(rs []*meshv1.AppendResult) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.got = append(a.got, rs...); len(a.got) == a.want {
		close(a.all)
	}
}
