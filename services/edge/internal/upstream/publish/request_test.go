package publish

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/routerlink"
)

type results = []*meshv1.ClientPublishReply_Result

// item publishes one message of connection 1, the id of which is its place.
func (b *bench) item(topic, key string) {
	b.ids[1]++
	b.Publish(exchange.Conn{Slot: 1}, "", b.ids[1], &meshv1.ClientPublish_Item{Topic: topic, DedupeKey: key})
}

// codes of the answers, in their order.
func (b *bench) codes() string {
	var all []string
	for _, a := range b.got() {
		all = append(all, code.Name(a.Result.GetCode()))
	}
	return strings.Join(all, " ")
}

// topics and keys of a request's items.
func names(req *meshv1.ClientPublish) string {
	var all []string
	for _, it := range req.GetItems() {
		all = append(all, it.GetTopic()+"/"+it.GetDedupeKey())
	}
	return strings.Join(all, " ")
}

// A router that goes while it is asked: another one is asked, as soon as that is known, for what a
// log knows by its key. Of the rest nobody can report whether it was published. Another life of the
// same router is another router.
func TestAnotherRouterIsAskedWhereOneGoes(t *testing.T) {
	for name, then := range map[string][]routerlink.Live{
		"another router": live("r2"),
		"another life":   {{ID: "r1", Incarnation: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, b *bench) {
				var asked []string
				b.by = func(ctx context.Context, _ string, req *meshv1.ClientPublish) ([]*meshv1.ClientPublishReply_Result, error) {
					asked = append(asked, names(req))
					if len(asked) == 1 {
						<-ctx.Done()
						return nil, code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, "cancelled")
					}
					return make(results, len(req.GetItems())), nil
				}
				began := time.Now()
				b.item("room", "a") // goes at once; the others wait for it
				synctest.Wait()
				b.item("room", "b")
				pass(300 * time.Millisecond)
				if len(b.got()) != 0 {
					t.Fatal("a router that is alive is waited for")
				}
				b.set(then)
				pass(lookEvery + 30*time.Millisecond)
				if got := b.codes(); got != "OK OK" || strings.Join(asked, ", ") != "room/a, room/a, room/b" {
					t.Errorf("%v after %v: asked for %q", got, time.Since(began), asked)
				}
			})
		})
	}
}

func TestWhatNobodyKnowsIsNotRepeated(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		var asked []string
		b.by = func(ctx context.Context, _ string, req *meshv1.ClientPublish) ([]*meshv1.ClientPublishReply_Result, error) {
			asked = append(asked, names(req))
			if len(asked) == 2 {
				<-ctx.Done()
				return nil, code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, "cancelled")
			}
			return make(results, len(req.GetItems())), nil
		}
		b.item("room", "")
		synctest.Wait() // under way, so that the next ones go together
		b.item("room", "")
		b.item("room", "k")
		b.item("passing", "k")
		b.item("room", "l")
		pass(100 * time.Millisecond)
		b.set(live("r2"))
		pass(time.Second)
		if got := b.codes(); got != "OK UNAVAILABLE OK UNAVAILABLE OK" {
			t.Errorf("answered %s", got)
		}
		if got := strings.Join(asked, ", "); got != "room/, room/ room/k passing/k room/l, room/k room/l" {
			t.Errorf("asked for %s", got)
		}
		if b.Sent.Load() != 3 || b.Unavailable.Load() != 2 {
			t.Errorf("%d sent, %d unavailable", b.Sent.Load(), b.Unavailable.Load())
		}
	})
}

// What a router did not take, since it is not there or stops, another one gets, key or not, in the
// same order.
func TestWhatWasNotTakenGoesToAnotherRouter(t *testing.T) {
	draining := &meshv1.ClientPublishReply_Result{Code: wirev1.Code_CODE_DRAINING, Error: "stops"}
	for name, first := range map[string]func(n int) (results, error){
		"not there": func(int) (results, error) { return nil, bus.ErrNobody },
		"stops":     func(n int) (results, error) { return append(make(results, n-2), draining, draining), nil },
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, b *bench) {
				b.set(live("r1", "r2"))
				subjects, last := map[string]bool{}, ""
				b.by = func(_ context.Context, subject string, req *meshv1.ClientPublish) ([]*meshv1.ClientPublishReply_Result, error) {
					n := len(req.GetItems())
					subjects[subject], last = true, names(req)
					if len(subjects) == 1 && n == 3 {
						return first(n)
					}
					return make(results, n), nil
				}
				b.item("passing", "")
				synctest.Wait()
				for _, key := range []string{"1", "2", "3"} {
					b.item("passing", key)
				}
				pass(time.Second)
				if got := b.codes(); got != "OK OK OK OK" || len(subjects) != 2 || !strings.HasSuffix(last, "passing/2 passing/3") {
					t.Errorf("answered %s by %v, at last %s", got, subjects, last)
				}
			})
		})
	}
	in(t, func(t *testing.T, b *bench) {
		b.set(live("r1", "r2", "r3"))
		n := 0
		b.by = func(context.Context, string, *meshv1.ClientPublish) ([]*meshv1.ClientPublishReply_Result, error) {
			n++
			return results{draining}, nil
		}
		b.item("room", "")
		pass(time.Second)
		if got := b.codes(); got != "UNAVAILABLE" || n != 3 {
			t.Errorf("%s after %d routers", got, n)
		}
	})
}
