package shardlog

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// Config of a Log.
type Config struct {
	Backend backend.Log
	Owner   backend.Owner
	// Writers is how many lanes append side by side, in each database; a shard belongs to lane
	// shard % Writers of its database.
	Writers int
	// Stall is how long the database may take for one step before what waits behind it is refused;
	// 0: DefaultStall.
	Stall time.Duration
	// Positions is how many positions of ordered producers a lane remembers, and PositionWindow how
	// long each at least; 0: DefaultPositions and DefaultPositionWindow.
	Positions      int
	PositionWindow time.Duration
	// TopicTTL is how long a topic is remembered after its last message is no longer retained,
	// ShortestTopicTTL at least; 0: for ever.
	TopicTTL time.Duration
	Policies func() *policy.Table
	// Known says why Policies are not those of the mesh yet: then nothing is taken. Ages says why
	// the clock can't tell what is too old: then all is kept. nil: no reason.
	Known, Ages func() error
	// Now is the clock; nil: the real one.
	Now     func() time.Time
	Log     *slog.Logger
	Metrics *Metrics
	Tracer  trace.Tracer
	// Scheduled is told what a commit keeps for later; it must not block. nil: nobody.
	Scheduled func([]backend.Scheduled)
}

// Log is every shard that this store owns. It is a lifecycle.Part; it owns a goroutine and a writer
// for each lane, and a goroutine that finds topics to forget.
type Log struct {
	cfg   Config
	lanes []*lane
	pace  pace
	place func(shard int) int
	group *lifecycle.Group
}

// New makes a log that owns nothing yet.
func New(cfg Config) *Log {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Known, cfg.Ages = orSure(cfg.Known), orSure(cfg.Ages)
	g := &Log{cfg: cfg, place: func(int) int { return 0 }}
	bases := []backend.Log{cfg.Backend}
	if several, ok := cfg.Backend.(backend.Several); ok {
		bases, g.place = several.Databases(), several.Place
	}
	for _, base := range bases {
		cfg.Backend = base
		for range cfg.Writers {
			g.lanes = append(g.lanes, newLane(strconv.Itoa(len(g.lanes)), cfg, &g.pace))
		}
	}
	for i, l := range g.lanes {
		l.state.share = g.keptShare
		for j, o := range g.lanes {
			if i != j {
				l.state.others = append(l.state.others, o.state)
			}
		}
	}
	return g
}

// orSure is f, or what never doubts.
func orSure(f func() error) func() error {
	if f == nil {
		return func() error { return nil }
	}
	return f
}

// laneOf is the number of a shard's lane; -1 while its data is on the move.
func (g *Log) laneOf(shard int) int {
	place := g.place(shard)
	if place < 0 {
		return -1
	}
	return place*g.cfg.Writers + shard%g.cfg.Writers
}

// Start starts the lanes.
func (g *Log) Start(context.Context) error {
	g.group = lifecycle.NewGroup(context.Background())
	for _, l := range g.lanes {
		g.group.Go("shardlog-lane-"+l.name, l.run)
	}
	if g.cfg.TopicTTL > 0 {
		g.group.Go("shardlog-forget", newForgetter(g).run)
	}
	return nil
}

// Drain refuses what comes from now on.
func (g *Log) Drain() {
	for _, l := range g.lanes {
		l.mu.Lock()
		l.draining = true
		l.mu.Unlock()
	}
}

// Stop commits what is queued, gives the shards back and ends.
func (g *Log) Stop(ctx context.Context) error {
	g.Drain()
	return g.group.Stop(ctx)
}

// Want says which shards this store should own.
func (g *Log) Want(shards []int) {
	each := make([][]int, len(g.lanes))
	for _, s := range shards {
		if l := g.laneOf(s); l >= 0 {
			each[l] = append(each[l], s)
		}
	}
	for i, l := range g.lanes {
		l.want(each[i])
	}
}

// PauseTaking sets whether no further shards may be taken; shards that are owned stay owned.
func (g *Log) PauseTaking(hold bool) {
	for _, l := range g.lanes {
		l.mu.Lock()
		l.pauseTaking = hold
		l.mu.Unlock()
	}
}

// Owned shards: those that can be appended to.
func (g *Log) Owned() (all []int) {
	for _, l := range g.lanes {
		all = append(all, l.state.owned()...)
	}
	return sorted(all)
}

// Check says which lanes can't append, and why.
func (g *Log) Check() error {
	for _, l := range g.lanes {
		l.mu.Lock()
		why, wanted, stalled := l.away, len(l.wanted), l.stalled
		l.mu.Unlock()
		if why != nil && wanted > 0 {
			return why
		}
		if stalled {
			return fmt.Errorf("lane %s: the database has not answered for %s at least", l.name, l.stall)
		}
		if owned := len(l.state.owned()); owned < wanted {
			return fmt.Errorf("lane %s owns %d of %d shards", l.name, owned, wanted)
		}
	}
	return nil
}

// Ready waits until every wanted shard is owned.
func (g *Log) Ready(ctx context.Context) error {
	for _, l := range g.lanes {
		for {
			l.mu.Lock()
			changed, away, wanted := l.changed, l.away, len(l.wanted)
			l.mu.Unlock()
			if wanted == 0 || away == nil && len(l.state.owned()) >= wanted {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("this store owns no shards yet: %w", ctx.Err())
			case <-changed:
			}
		}
	}
	return nil
}

// lane of a shard. One on the move has any: none owns it.
func (g *Log) lane(shard int) *lane { return g.lanes[max(g.laneOf(shard), 0)] }

// Append takes items of one caller; each gets exactly one result at sink, those of one topic in the
// order given.
func (g *Log) Append(items []*meshv1.AppendItem, sink Sink) {
	groups := make([][]*entry, len(g.lanes))
	var bad []*meshv1.AppendResult
	now := g.cfg.Now()
	entries := make([]entry, len(items))
	for i, item := range items {
		e := &entries[i]
		*e = entry{item: item, sink: sink, at: now}
		if err := check(item); err != nil {
			bad = append(bad, refusalOf(e, err))
			continue
		}
		e.shard = topic.Shard(item.GetTopic())
		e.key = keyOf(item)
		lane := max(g.laneOf(e.shard), 0) // none owns one that is on the move, and says so
		groups[lane] = append(groups[lane], e)
	}
	if len(bad) > 0 {
		g.cfg.Metrics.answered(bad)
		sink.Results(bad)
	}
	for i, group := range groups {
		if len(group) > 0 {
			g.lanes[i].submit(group)
		}
	}
}
