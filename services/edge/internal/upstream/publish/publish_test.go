package publish

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/routerlink"
)

type bench struct {
	*Publisher
	mu       sync.Mutex
	requests map[string][]int // items of each request, by subject
	answers  []exchange.Published
	ids      map[uint32]uint32
	routers  []routerlink.Live
	request  func(items int) (int, error)
	// nil: request answers
	by func(ctx context.Context, subject string, req *meshv1.ClientPublish) ([]*meshv1.ClientPublishReply_Result, error)
}

func in(t *testing.T, f func(t *testing.T, b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{requests: map[string][]int{}, ids: map[uint32]uint32{}, routers: live("r1"), request: func(n int) (int, error) { return n, nil }}
		b.Publisher = New(Config{
			Edge: "e1", Request: b.ask, Routers: b.alive, Durable: func(topic string) bool { return topic != "passing" },
			Post: func(_ uint16, e exchange.Event) {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.answers = append(b.answers, e.(exchange.Published))
			},
		})
		if err := b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := b.Stop(context.Background()); err != nil {
				t.Error(err)
			}
			if b.all != (share{}) || len(b.origins) != 0 || len(b.lines) != 0 {
				t.Errorf("%v are left, of %v, in %d lines", b.all, b.origins, len(b.lines))
			}
		}()
		f(t, b)
	})
}

func live(ids ...string) (all []routerlink.Live) {
	for _, id := range ids {
		all = append(all, routerlink.Live{ID: id, Incarnation: 1})
	}
	return all
}

func (b *bench) alive() []routerlink.Live {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.routers
}

// set has other routers live.
func (b *bench) set(all []routerlink.Live) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.routers = all
}

func (b *bench) got() []exchange.Published {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.answers)
}

// sizes of the requests to the router.
func (b *bench) sizes() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Sprint(b.requests[bus.RouterPublish("r1")])
}

// ask takes 10 ms, and answers with as many results as told.
func (b *bench) ask(ctx context.Context, subject string, data []byte) ([]byte, error) {
	pass(10 * time.Millisecond)
	req := &meshv1.ClientPublish{}
	if err := proto.Unmarshal(data, req); err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.requests[subject] = append(b.requests[subject], len(req.GetItems()))
	b.mu.Unlock()
	if b.by != nil {
		results, err := b.by(ctx, subject, req)
		if err != nil {
			return nil, err
		}
		return proto.Marshal(&meshv1.ClientPublishReply{Results: results})
	}
	n, err := b.request(len(req.GetItems()))
	if err != nil {
		return nil, err
	}
	return proto.Marshal(&meshv1.ClientPublishReply{Results: make([]*meshv1.ClientPublishReply_Result, n)})
}

func (b *bench) publish(slot uint32, n, size int) {
	for range n {
		b.ids[slot]++
		b.Publish(exchange.Conn{Slot: slot}, "", b.ids[slot], &meshv1.ClientPublish_Item{Topic: "t", Payload: make([]byte, size)})
	}
}

func TestOneRequestAtATimeForEachConnection(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		begin := time.Now()
		b.publish(1, 1, 10)
		synctest.Wait()
		b.publish(1, 200, 10)
		b.publish(2, 3, 10)
		for range 4 {
			pass(10 * time.Millisecond)
			synctest.Wait()
		}
		if len(b.got()) != 204 || time.Since(begin) != 40*time.Millisecond {
			t.Fatalf("%d answers", len(b.got()))
		}
		next := map[exchange.Conn]uint32{}
		for _, a := range b.got() {
			if next[a.Conn]++; a.ID != next[a.Conn] || a.Result.GetCode() != wirev1.Code_CODE_OK {
				t.Fatalf("%+v after %d", a, next[a.Conn]-1)
			}
		}
		if sizes := b.sizes(); !strings.Contains(sizes, " 128 ") || !strings.Contains(sizes, " 72]") {
			t.Errorf("requests of %s", sizes)
		}
	})
}

func TestRequestsAreBoundedInBytes(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		b.publish(1, 1, 10)
		synctest.Wait()
		b.publish(1, 4, 200<<10)
		pass(time.Second)
		if got := b.sizes(); got != "[1 2 2]" {
			t.Errorf("requests of %s", got)
		}
		b.publish(1, 1, 2<<20)
		pass(time.Second)
		if last := b.got()[len(b.got())-1]; last.Result.GetCode() != wirev1.Code_CODE_PAYLOAD_TOO_LARGE {
			t.Errorf("%+v", last)
		}
	})
}

func TestEveryMessageIsAnswered(t *testing.T) {
	for name, c := range map[string]struct {
		routers []routerlink.Live
		request func(int) (int, error)
		want    wirev1.Code
	}{
		"no router": {nil, nil, wirev1.Code_CODE_UNAVAILABLE},
		"no answer": {live("r"), func(int) (int, error) {
			return 0, code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, "timeout")
		}, wirev1.Code_CODE_UNAVAILABLE},
		"too few results": {live("r"), func(n int) (int, error) { return n - 1, nil }, wirev1.Code_CODE_INTERNAL},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, b *bench) {
				b.set(c.routers)
				if c.request != nil {
					b.request = c.request
				}
				b.publish(1, 3, 10)
				pass(time.Second)
				if len(b.got()) != 3 {
					t.Fatalf("%d answers", len(b.got()))
				}
				for _, a := range b.got() {
					if a.Result.GetCode() != c.want || a.Result.GetError() == "" {
						t.Errorf("%+v", a)
					}
				}
			})
		})
	}
}

func TestTooMuchIsRefused(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		b.publish(1, itemsWaiting+5, 1)
		refused := 0
		for _, a := range b.got() {
			if a.Result.GetCode() == wirev1.Code_CODE_OVERLOADED && a.Result.GetRetryAfterMs() > 0 {
				refused++
			}
		}
		if refused < 5 || int(b.Refused.Load()) != refused {
			t.Errorf("%d refused", refused)
		}
		pass(time.Minute)
		if len(b.got()) != itemsWaiting+5 {
			t.Errorf("%d answers", len(b.got()))
		}
	})
}

// pass lets fake time pass.
func pass(d time.Duration) { <-time.After(d) }
