package shardlog

import (
	"fmt"
	"log/slog"
	"sync"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// pass lets time pass: the bubble's, which costs none.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// answers is a sink that keeps the results of one call of Append, in the order of its items, whose
// refs are their numbers.
type answers struct {
	mu   sync.Mutex
	all  []*meshv1.AppendResult
	left int
	bad  string
}

func (a *answers) Results(rs []*meshv1.AppendResult) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range rs {
		if a.all[r.GetRef()] != nil {
			a.bad = fmt.Sprintf("item %d is answered twice: %v", r.GetRef(), r)
		}
		a.all[r.GetRef()] = r
		a.left--
	}
}

// appended gives items to a log, whose answers come as they come.
func appended(l *Log, items ...*meshv1.AppendItem) *answers {
	a := &answers{all: make([]*meshv1.AppendResult, len(items)), left: len(items)}
	for i, item := range items {
		item.Ref = uint64(i)
	}
	l.Append(items, a)
	return a
}

// wait lets time pass until all is answered, and returns how much that took.
func (a *answers) wait(t interface{ Fatalf(string, ...any) }) time.Duration {
	begun := time.Now()
	for {
		synctest.Wait()
		a.mu.Lock()
		left, bad := a.left, a.bad
		a.mu.Unlock()
		switch took := time.Since(begun); {
		case bad != "":
			t.Fatalf("%s", bad)
		case left == 0:
			return took
		case took > time.Minute:
			t.Fatalf("%d of %d items are not answered", left, len(a.all))
		}
		pass(10 * time.Millisecond)
	}
}

// newLog is a log on a database in memory, by the bubble's clock.
func newLog(db *memory, reg prometheus.Registerer, changes ...func(*Config)) *Log {
	cfg := Config{
		Backend: db, Owner: backend.Owner{StoreID: "a"}, Writers: 2, Policies: func() *policy.Table { return table }, Log: slog.New(slog.DiscardHandler), Metrics: NewMetrics(reg),
	}
	for _, change := range changes {
		change(&cfg)
	}
	return New(cfg)
}

var table = policy.NewTable(nil)

// gauge is the sum of a metric.
func gauge(t interface{ Fatalf(string, ...any) }, reg *prometheus.Registry, name string) (sum float64) {
	all, err := reg.Gather()
	if err != nil {
		t.Fatalf("%v", err)
	}
	for _, f := range all {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
