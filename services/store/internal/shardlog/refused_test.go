package shardlog_test

import (
	"errors"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
)

// forgetful passes on what a load tells but what it drops.
type forgetful struct {
	backend.Loader
	dropTopic func(backend.Topic) bool
	dropRun   func(backend.Run) bool
}

func (f forgetful) LoadTopic(t backend.Topic) {
	if f.dropTopic == nil || !f.dropTopic(t) {
		f.Loader.LoadTopic(t)
	}
}

func (f forgetful) LoadRun(r backend.Run) {
	if f.dropRun == nil || !f.dropRun(r) {
		f.Loader.LoadRun(r)
	}
}

// until polls.
func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.After(backendtest.Patience); !cond(); {
		select {
		case <-poll.C:
		case <-deadline:
			t.Fatalf("never: %s", what)
		}
	}
}

// A shard whose loaded heads contradict the log is refused, and no other; once it is loaded whole,
// its seqs go on.
func TestAShardThatContradictsTheLogIsRefused(t *testing.T) {
	const bad, good = "room/1", "room/2"
	for name, c := range map[string]struct {
		close func(t *testing.T, l *backendtest.Log, f *faulty)
		load  forgetful
	}{
		"a head below what the checkpoint covers": {
			// with a checkpoint
			func(t *testing.T, l *backendtest.Log, _ *faulty) { t.Helper(); l.Close(t) },
			forgetful{dropTopic: func(t backend.Topic) bool { return t.Topic == bad }},
		},
		"a run that is missing": {
			func(t *testing.T, l *backendtest.Log, f *faulty) {
				t.Helper()
				f.set(func(f *faulty) { f.away = errors.New("gone, before any checkpoint") })
				need(t, f.Fence(t.Context(), me.StoreID, me.Incarnation))
				l.Close(t)
				f.set(func(f *faulty) { f.away = nil })
			},
			forgetful{dropRun: func(r backend.Run) bool { return r.Topic == bad && r.First == 2 }},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, f := start(t)
			for range 3 {
				for _, name := range []string{bad, good} {
					if r := l.Append(t, backendtest.Item(name, "x"))[0]; r.GetCode() != wirev1.Code_CODE_OK {
						t.Fatal(r)
					}
				}
			}
			c.close(t, l, f)
			f.set(func(f *faulty) {
				f.load = func(into backend.Loader) backend.Loader {
					with := c.load
					with.Loader = into
					return with
				}
			})
			next := backend.Owner{StoreID: "b", Incarnation: 1, Address: "b:1"}
			l = backendtest.OpenLog(t, f, next, 2, time.Now)
			until(t, "all shards but one", func() bool { return len(l.Owned()) == topic.Shards-1 })
			r := l.Append(t, backendtest.Item(bad, "y"), backendtest.Item(good, "y"))
			if r[0].GetCode() != wirev1.Code_CODE_UNAVAILABLE || r[0].GetRetryAfterMs() == 0 {
				t.Errorf("an append to the shard refused: %v", r[0])
			}
			if r[1].GetCode() != wirev1.Code_CODE_OK || r[1].GetSeq() != 4 {
				t.Errorf("an append to another: %v", r[1])
			}
			until(t, "the shard is given back", func() bool {
				owners, err := f.Owners(t.Context())
				need(t, err)
				return len(owners) == topic.Shards-1
			})
			f.set(func(f *faulty) { f.load = nil })
			l.WaitReady(t)
			if r := l.Append(t, backendtest.Item(bad, "y"))[0]; r.GetCode() != wirev1.Code_CODE_OK || r.GetSeq() != 4 {
				t.Errorf("an append once it is loaded: %v", r)
			}
		})
	}
}
