package postgres

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
	"github.com/pushmesh/pushmesh/services/store/internal/shardlog"
)

// However the statement fails that forgets a topic: it is forgotten in the end, begins anew at 1 of
// a later epoch, once, and the next store knows.
func TestAForgettingThatFails(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	healthy := open(t, url)
	soon := policy.NewTable([]*pushmeshv1.Namespace{{Prefix: "soon", Policy: &pushmeshv1.Policy{Durable: true, Retention: durationpb.New(time.Hour)}}})
	for i, fate := range pgtest.Fates {
		name := fmt.Sprint("soon/", i)
		clock := backendtest.NewClock()
		clock.Add(time.Since(clock.Now())) // rows have the database's
		run := func(d *DB, store string, ttl time.Duration) *backendtest.Log {
			l := backendtest.OpenLogOf(t, []int{topic.Shard(name)}, d, owner(store), 1, clock.Now, func(c *shardlog.Config) {
				c.TopicTTL, c.Policies = ttl, func() *policy.Table { return soon }
			})
			l.WaitReady(t)
			return l
		}
		l := run(healthy, fmt.Sprint("a", i), 0)
		first := l.Append(t, backendtest.Item(name, "1"), backendtest.Item(name, "2"))
		l.Close(t)
		need(t, healthy.FoldCheckpoints(t.Context(), backend.FoldAll))
		clock.Add(3 * time.Hour)
		wire := &pgtest.Wire{}
		d := openWith(t, Config{URL: url, Dial: wire.Dial, Patience: 500 * time.Millisecond})
		var mu sync.Mutex
		met := 0
		wire.Judge(func(s pgtest.Statement) pgtest.Fate {
			mu.Lock()
			defer mu.Unlock()
			if !strings.HasPrefix(s.SQL, "parse: ") && strings.Contains(s.SQL, "INSERT INTO pushmesh.checkpoint (id") {
				if met++; met == 1 {
					return fate
				}
			}
			return pgtest.Pass
		})
		l = run(d, fmt.Sprint("b", i), shardlog.ShortestTopicTTL)
		tried(t, func() error {
			clock.Add(time.Minute) // a round begins every hour
			all, err := l.Heads(t.Context(), []string{name}, nil, 0)
			if err == nil && (all[0].GetHead() > 0 || all[0].GetEpoch() <= first[0].GetEpoch()) {
				err = fmt.Errorf("%v: %v is not forgotten", fate, all[0])
			}
			return err
		})
		wire.Judge(nil)
		if met == 0 {
			t.Errorf("%v: no statement forgot", fate)
		}
		again := l.Append(t, backendtest.Item(name, "3"))[0]
		if again.GetSeq() != 1 || again.GetEpoch() <= first[1].GetEpoch() {
			t.Errorf("%v: it begins anew with %v after %v", fate, again, first[1])
		}
		l.Close(t)
		need(t, d.Close())
		for _, fold := range []bool{false, true} {
			if fold {
				need(t, healthy.FoldCheckpoints(t.Context(), backend.FoldAll))
			}
			l = run(healthy, fmt.Sprint("c", i, fold), 0)
			all, err := l.Heads(t.Context(), []string{name}, nil, 0)
			need(t, err)
			if all[0].GetHead() != 1 || all[0].GetEpoch() != again.GetEpoch() {
				t.Errorf("%v: the next store has head %v after %v", fate, all[0], again)
			}
			l.Close(t)
		}
	}
}
