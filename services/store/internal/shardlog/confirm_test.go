package shardlog_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
)

// A store that hung, and knows nothing since, answers for no head: neither by name nor by filter,
// nor for sessions. What the database says then, counts.
func TestHeadsNeedALockThatIsConfirmed(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(map[bool]string{false: "still owned", true: "lost"}[lost], func(t *testing.T) {
			l, f := start(t)
			l.Append(t, backendtest.Item("room/1", "x"))
			thaw := make(chan struct{})
			f.set(func(f *faulty) {
				f.claim = func() error {
					<-thaw
					if lost {
						f.set(func(f *faulty) { f.away = errCut }) // no writer comes after it
						return errCut
					}
					return nil
				}
			})
			ctx, cancel := context.WithTimeout(context.Background(), backendtest.Patience)
			defer cancel()
			for { // what was confirmed is good for a while
				if hs, err := l.Log.Heads(ctx, []string{"room/1"}, nil, 0); err == nil {
					if hs[0].GetHead() != 1 {
						t.Fatalf("%v", hs)
					}
					<-time.After(10 * time.Millisecond)
				} else if code.Of(err) == wirev1.Code_CODE_UNAVAILABLE && code.Retryable(code.Of(err)) {
					break
				} else {
					t.Fatal(err)
				}
			}
			if hs, shards, err := l.Survey(ctx, nil, []string{"#"}, 0); err != nil || len(hs) != 0 || shards.Full() {
				t.Errorf("%v, all shards %v, %v", hs, shards.Full(), err)
			}
			if err := l.Sure(ctx, topic.Shard("room/1")); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
				t.Errorf("sure: %v", err)
			}
			asked := make(chan error, 1)
			go func() {
				hs, err := l.Log.Heads(ctx, []string{"room/1"}, nil, 0)
				if err == nil && hs[0].GetHead() != 1 {
					err = errors.New("another head")
				}
				asked <- err
			}()
			close(thaw)
			switch err := <-asked; {
			case lost && code.Of(err) != wirev1.Code_CODE_UNAVAILABLE:
				t.Errorf("a shard that was lost: %v", err)
			case !lost && err != nil && code.Of(err) != wirev1.Code_CODE_UNAVAILABLE:
				// late on a busy machine
				t.Error(err)
			}
			if lost {
				return
			}
			for { // it heals
				_, err := l.Log.Heads(ctx, []string{"room/1"}, nil, 0)
				if err == nil {
					break
				}
				if ctx.Err() != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
