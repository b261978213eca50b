package clock

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// clocks are a database's and a host's that a test sets, both right at first.
type clocks struct {
	database, host time.Duration // ahead of the real time
	err            error
}

func (c *clocks) make(trust bool) *Clock {
	return New(Config{
		Ask:  func(context.Context) (uint64, error) { return uint64(time.Now().Add(c.database).UnixMicro()), c.err },
		Host: func() time.Time { return time.Now().Add(c.host) }, Trust: trust, Log: slog.New(slog.DiscardHandler),
	})
}

const year = 365 * 24 * time.Hour

// ahead is how far the clock's time is ahead of the real one, to the nearest tenth of the limit.
func ahead(c *Clock) time.Duration { return time.Until(c.Now()).Round(Limit / 10) }

// Whatever one of two clocks does, time goes on as the database had it, and nothing is deleted
// while they disagree.
func TestTwoClocksCheckEachOther(t *testing.T) {
	for name, c := range map[string]struct {
		move  func(*clocks)
		trust bool
		ahead time.Duration
		doubt string
	}{
		"nothing":                          {func(*clocks) {}, false, 0, ""},
		"seconds":                          {func(x *clocks) { x.host, x.database = -3*time.Second, 4*time.Second }, false, 4 * time.Second, ""},
		"the host is a year ahead":         {func(x *clocks) { x.host = year }, false, 0, "8760h0m0s ahead of"},
		"the host is behind":               {func(x *clocks) { x.host = -time.Minute }, false, 0, "1m0s behind"},
		"the database jumps a year ahead":  {func(x *clocks) { x.database = year }, false, 0, "jumped by 87"},
		"the database jumps back":          {func(x *clocks) { x.database = -year }, false, 0, "jumped by -87"},
		"both jump: the process was away":  {func(x *clocks) { x.host, x.database = time.Hour, time.Hour }, false, time.Hour, ""},
		"the operator trusts the database": {func(x *clocks) { x.database = year }, true, year, ""},
		"the database is away":             {func(x *clocks) { x.host, x.database, x.err = year, year, errors.New("away") }, false, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			x := &clocks{}
			k := x.make(c.trust)
			if err := k.Check(); !errors.Is(err, errNotAsked) {
				t.Errorf("before the first answer: %v", err)
			}
			if err := k.Set(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.move(x)
			for range 2 {
				_ = k.ask(t.Context())
			}
			err := k.Check()
			if ahead(k) != c.ahead || (err == nil) != (c.doubt == "") || err != nil && !strings.Contains(err.Error(), c.doubt) {
				t.Errorf("ahead by %s, want %s; doubt %v, want %q", ahead(k), c.ahead, err, c.doubt)
			}
			*x = clocks{}
			if err := k.ask(t.Context()); err != nil || k.Check() != nil || ahead(k) != 0 {
				t.Errorf("once both are right again: %v, %v, ahead by %s", err, k.Check(), ahead(k))
			}
		})
	}
}

// A store that starts while the clocks are apart says so, and which one is right is for people to
// say.
func TestNoStartWithClocksApart(t *testing.T) {
	for _, x := range []*clocks{{host: year}, {host: -year}, {database: year}, {database: -time.Minute}} {
		if err := x.make(false).Set(t.Context()); err == nil {
			t.Errorf("%+v: no word", x)
		}
		k := x.make(true)
		if err := k.Set(t.Context()); err != nil || ahead(k) != x.database {
			t.Errorf("%+v, trusted: %v, ahead by %s", x, err, ahead(k))
		}
	}
	x := &clocks{err: errors.New("away")}
	if err := x.make(true).Set(t.Context()); !errors.Is(err, x.err) {
		t.Errorf("a database that is away: %v", err)
	}
}

// A store starts beside a database of which every answer takes long. Later such an answer moves
// nothing.
func TestASlowDatabaseTellsTheTimeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var jump time.Duration
		k := New(Config{Ask: func(context.Context) (uint64, error) {
			at := time.Now().Add(jump)
			<-time.After(slow + slow/2)
			return uint64(at.UnixMicro()), nil
		}, Log: slog.New(slog.DiscardHandler)})
		if err := k.Set(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := time.Until(k.Now()); d < -2*slow || d > 0 {
			t.Errorf("the time is %s ahead, after an answer that took %s", d, slow+slow/2)
		}
		before := time.Until(k.Now())
		jump = 5 * time.Second
		if err := k.Set(t.Context()); err == nil {
			t.Error("a second slow answer is taken")
		}
		if moved := time.Until(k.Now()) - before; moved != 0 {
			t.Errorf("a second slow answer moved the time by %s", moved)
		}
	})
}
