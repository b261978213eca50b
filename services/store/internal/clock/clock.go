// Package clock tells the database's time, by which everything of a store happens: times of
// messages, retention, what falls due, what expires. It does not follow a clock blindly. The
// database's and the host's clocks check each other: while they are apart, or the database's
// jumped, nothing is deleted, for that would be for ever.
package clock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pushmesh/pushmesh/internal/lifecycle"
)

const (
	// Limit is how far the database's and the host's clocks may be apart.
	Limit = 10 * time.Second
	// askEvery is the pace of asking the database.
	askEvery = time.Second
	// askTimeout bounds a question. An answer that took longer than slow says little about the
	// time: it is taken only while nothing is known.
	askTimeout = 2 * time.Second
	slow       = time.Second
)

var errNotAsked = errors.New("the database's time is not known yet")

// Config of a Clock.
type Config struct {
	// Ask the database for its time, in Unix microseconds.
	Ask func(ctx context.Context) (uint64, error)
	// Host is the host's clock; nil: time.Now.
	Host func() time.Time
	// Trust is the operator's word that the database's clock is right, whatever the host's says.
	Trust bool
	Log   *slog.Logger
	// Registry may be nil.
	Registry prometheus.Registerer
}

// Clock is a lifecycle.Part that owns a goroutine. Between two answers, and while the database is
// away, it goes on by the monotonic clock.
type Clock struct {
	cfg   Config
	begin time.Time // where monotonic times begin
	group *lifecycle.Group
	apart prometheus.Gauge

	mu     sync.Mutex
	known  bool
	offset int64 // the database's time less the monotonic one, in microseconds
	doubt  error // why nothing may be deleted; nil: it may
}

// New makes a clock that knows no time yet.
func New(cfg Config) *Clock {
	if cfg.Host == nil {
		cfg.Host = time.Now
	}
	return &Clock{cfg: cfg, begin: time.Now(), doubt: errNotAsked, apart: promauto.With(cfg.Registry).NewGauge(prometheus.GaugeOpts{
		Name: "pushmesh_store_clock_offset_seconds", Help: "The host's clock minus the database's, at the last comparison.",
	})}
}

// Set asks once, before anything else: an error says that the database was not reached, or that the
// clocks are apart; then which one is wrong is for people to say.
func (c *Clock) Set(ctx context.Context) error {
	if err := c.ask(ctx); err != nil {
		return err
	}
	return c.Check()
}

// Start goes on asking.
func (c *Clock) Start(context.Context) error {
	c.group = lifecycle.NewGroup(context.Background())
	c.group.Go("store-clock", func(ctx context.Context) {
		lifecycle.Every(ctx, askEvery, func(time.Time) {
			if err := c.ask(ctx); err != nil {
				// readiness names a database that is away
				c.cfg.Log.Debug("asking the database for its time failed", "error", err)
			}
		})
	})
	return nil
}

// Stop ends that.
func (c *Clock) Stop(ctx context.Context) error { return c.group.Stop(ctx) }

// Now is the database's time. Before Set it is the host's.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return c.cfg.Host()
	}
	return time.UnixMicro(c.offset + time.Since(c.begin).Microseconds())
}

// Check says why nothing may be deleted by this clock; nil: it may.
func (c *Clock) Check() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.doubt
}

// ask takes one answer in. One that took long is left out, unless it is the first.
func (c *Clock) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	asked := time.Since(c.begin)
	at, err := c.cfg.Ask(ctx)
	if err != nil {
		return err
	}
	answered := time.Since(c.begin)
	c.mu.Lock()
	known := c.known
	c.mu.Unlock()
	if known && answered-asked > slow {
		return fmt.Errorf("the answer took %s", answered-asked)
	}
	c.note(asked.Microseconds(), answered.Microseconds(), int64(at), c.cfg.Host().UnixMicro())
	return nil
}

// note takes in that the database's time was at, somewhen between two monotonic times, and the
// host's was host at the later one.
func (c *Clock) note(asked, answered, at, host int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	least, most := at-answered, at-asked // bounds of the offset
	apart := host - at
	c.apart.Set(float64(apart) / 1e6)
	hostAgrees := near(apart) || c.cfg.Trust
	jump := int64(0)
	if c.known {
		jump = min(max(c.offset, least), most) - c.offset
	}
	was := c.doubt
	switch {
	case near(jump) || hostAgrees:
		// both clocks at once: this process stood still, or the clocks were set
		if c.known {
			c.offset += jump
		} else {
			c.offset = least
		}
		c.known, c.doubt = true, nil
		if !hostAgrees {
			c.doubt = fmt.Errorf("the host's clock is %s the database's, %s at most: nothing is deleted until they agree; run a time service on both machines",
				direction(apart), Limit)
		}
	default:
		c.doubt = fmt.Errorf("the database's clock jumped by %s and does not agree with the host's: time goes on as before, and nothing is deleted; set the right one, "+
			"or restart with --trust-clock if the database's is right", time.Duration(jump)*time.Microsecond)
	}
	if c.doubt != nil && was == nil || c.doubt != nil && errors.Is(was, errNotAsked) {
		c.cfg.Log.Error("the clock is in doubt", "error", c.doubt)
	}
}

// near reports whether a difference in microseconds is within Limit.
func near(d int64) bool {
	return time.Duration(d)*time.Microsecond <= Limit && time.Duration(d)*time.Microsecond >= -Limit
}

func direction(apart int64) string {
	d := time.Duration(apart) * time.Microsecond
	if d < 0 {
		return fmt.Sprint((-d).Round(time.Millisecond), " behind")
	}
	return fmt.Sprint(d.Round(time.Millisecond), " ahead of")
}
