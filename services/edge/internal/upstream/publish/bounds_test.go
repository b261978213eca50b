package publish

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// sized is a message that counts as so many bytes: its topic, payload, a header, and what every
// message costs.
func sized(n int) *meshv1.ClientPublish_Item {
	it := &meshv1.ClientPublish_Item{Topic: strings.Repeat("t", 100), Headers: map[string]string{strings.Repeat("k", 30): strings.Repeat("v", 20)}}
	it.Payload = shared[:n-perItemOverhead-100-50]
	return it
}

// shared is the payload of messages that nobody reads.
var shared = make([]byte, 2<<20)

// However many connections publish, so many requests are under way and no more, one for each
// connection; whoever waits has its turn, and its messages stay in order.
func TestRequestsAtATime(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		var under, most atomic.Int32
		go1 := make(chan struct{})
		b.by = func(_ context.Context, _ string, req *meshv1.ClientPublish) ([]*meshv1.ClientPublishReply_Result, error) {
			n := under.Add(1)
			defer under.Add(-1)
			for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
			}
			<-go1
			return make(results, len(req.GetItems())), nil
		}
		const conns = requestsAtATime + 20
		for range 2 {
			for slot := range uint32(conns) {
				b.publish(slot+1, 1, 1)
			}
			pass(time.Second / 2)
		}
		synctest.Wait()
		if n := under.Load(); n != requestsAtATime {
			t.Errorf("%d requests are under way", n)
		}
		close(go1)
		pass(time.Second)
		next := map[exchange.Conn]uint32{}
		for _, a := range b.got() {
			if next[a.Conn]++; a.ID != next[a.Conn] || a.Result.GetCode() != wirev1.Code_CODE_OK {
				t.Fatalf("%+v, want answer %d", a, next[a.Conn])
			}
		}
		if len(b.got()) != 2*conns || most.Load() != requestsAtATime {
			t.Errorf("%d answers, %d requests at once", len(b.got()), most.Load())
		}
		for range 2 { // and again: nothing of the bound was used up
			b.publish(1, 1, 1)
			pass(time.Second)
		}
		if len(b.got()) != 2*conns+2 || b.Sent.Load() != 2*conns+2 {
			t.Errorf("%d answers, %d sent", len(b.got()), b.Sent.Load())
		}
	})
}

// A request takes as many messages as have room in it, by all that they have: topics, headers and
// payloads.
func TestBytesOfARequest(t *testing.T) {
	for more, want := range map[int]string{0: "[1 2]", 1: "[1 1 1]"} {
		in(t, func(t *testing.T, b *bench) {
			b.publish(1, 1, 1)
			synctest.Wait()
			for i, n := range []int{bytesInARequest / 2, bytesInARequest/2 + more} {
				b.Publish(exchange.Conn{Slot: 1}, "", uint32(i+2), sized(n))
			}
			pass(time.Second)
			if got := b.sizes(); got != want {
				t.Errorf("with %d bytes more than a request takes there were requests of %s, want %s", more, got, want)
			}
		})
	}
}

// What waits is bounded, in number and in bytes: at the bound a message is taken, the next one is
// refused with a time to come back, and what was answered makes room.
func TestWhatWaitsIsBounded(t *testing.T) {
	for name, x := range map[string]struct{ n, size int }{"messages": {itemsWaiting, 300}, "bytes": {bytesWaiting / (128 << 10), 128 << 10}} {
		in(t, func(t *testing.T, b *bench) {
			hold := make(chan struct{})
			b.by = func(_ context.Context, _ string, req *meshv1.ClientPublish) ([]*meshv1.ClientPublishReply_Result, error) {
				<-hold
				return make(results, len(req.GetItems())), nil
			}
			for i := range x.n {
				b.Publish(exchange.Conn{Slot: 1}, "", uint32(i+1), sized(x.size))
			}
			if n := b.Refused.Load(); n != 0 || len(b.got()) != 0 {
				t.Errorf("%s: %d refused at the bound", name, n)
			}
			b.Publish(exchange.Conn{Slot: 2}, "", 7, sized(300))
			if got := b.got(); len(got) != 1 || got[0].ID != 7 || got[0].Conn.Slot != 2 || got[0].Result.GetCode() != wirev1.Code_CODE_OVERLOADED ||
				got[0].Result.GetRetryAfterMs() != uint32(retryAfter.Milliseconds()) || b.Refused.Load() != 1 {
				t.Errorf("%s: beyond the bound %v, %d refused", name, got, b.Refused.Load())
			}
			close(hold)
			pass(time.Minute)
			b.Publish(exchange.Conn{Slot: 2}, "", 8, sized(300))
			pass(time.Minute)
			if got := b.got(); len(got) != x.n+2 || b.Refused.Load() != 1 || b.Sent.Load() != uint64(x.n+1) {
				t.Errorf("%s: %d answers, %d refused, %d sent", name, len(got), b.Refused.Load(), b.Sent.Load())
			}
		})
	}
}

// What NATS carries is sent, and one byte more is refused, with what to do.
func TestTheLongestRequest(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		it := &meshv1.ClientPublish_Item{Topic: "t"}
		req := &meshv1.ClientPublish{EdgeId: "e1", Items: []*meshv1.ClientPublish_Item{it}}
		for it.Payload = shared[:bus.MaxMessage-100]; proto.Size(req) < bus.MaxMessage; {
			it.Payload = shared[:len(it.GetPayload())+1]
		}
		for more, want := range []wirev1.Code{wirev1.Code_CODE_OK, wirev1.Code_CODE_PAYLOAD_TOO_LARGE} {
			b.Publish(exchange.Conn{Slot: 1}, "", uint32(more+1), &meshv1.ClientPublish_Item{Topic: "t", Payload: shared[:len(it.GetPayload())+more]})
			pass(time.Second)
			if got := b.got(); len(got) != more+1 || got[more].Result.GetCode() != want {
				t.Errorf("%d bytes too many: %v", more, got)
			}
		}
		if b.Sent.Load() != 1 || b.Unavailable.Load() != 1 {
			t.Errorf("%d sent, %d unavailable", b.Sent.Load(), b.Unavailable.Load())
		}
	})
}

// Each message has its own answer, whichever router gave it and however often it was asked for.
func TestAnswersAreTheMessagesOwn(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		b.set(live("r1", "r2"))
		first := ""
		b.by = func(_ context.Context, subject string, req *meshv1.ClientPublish) ([]*meshv1.ClientPublishReply_Result, error) {
			if first == "" {
				first = subject
			}
			var all results
			for _, it := range req.GetItems() {
				r := &meshv1.ClientPublishReply_Result{}
				_, _ = fmt.Sscan(it.GetDedupeKey(), &r.Seq)
				if subject == first && r.GetSeq()%3 == 0 {
					r = &meshv1.ClientPublishReply_Result{Code: wirev1.Code_CODE_DRAINING}
				}
				all = append(all, r)
			}
			return all, nil
		}
		for i := range 20 {
			b.item("room", fmt.Sprint(i+1))
		}
		pass(time.Second)
		if len(b.got()) != 20 || b.Sent.Load() != 20 || b.Unavailable.Load() != 0 {
			t.Fatalf("%d answers, %d sent, %d unavailable", len(b.got()), b.Sent.Load(), b.Unavailable.Load())
		}
		for i, a := range b.got() {
			if a.ID != uint32(i+1) || a.Result.GetSeq() != uint64(i+1) {
				t.Errorf("message %d was answered %+v", i+1, a)
			}
		}
	})
	in(t, func(t *testing.T, b *bench) { // counted each
		b.by = func(context.Context, string, *meshv1.ClientPublish) ([]*meshv1.ClientPublishReply_Result, error) {
			return nil, code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, "timeout")
		}
		for range 3 {
			b.item("room", "k")
		}
		pass(time.Second)
		if got := b.codes(); got != "UNAVAILABLE UNAVAILABLE UNAVAILABLE" || b.Unavailable.Load() != 3 || b.Sent.Load() != 0 {
			t.Errorf("%s, %d unavailable, %d sent", got, b.Unavailable.Load(), b.Sent.Load())
		}
	})
}

// A router that never answers is waited for so long, and one that is gone not.
func TestHowLongARouterIsWaitedFor(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		b.by = func(ctx context.Context, _ string, _ *meshv1.ClientPublish) ([]*meshv1.ClientPublishReply_Result, error) {
			<-ctx.Done()
			return nil, code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, ctx.Err().Error())
		}
		b.item("room", "")
		pass(requestTimeout - 1)
		synctest.Wait()
		if len(b.got()) != 0 {
			t.Error("it was not waited for")
		}
		pass(1)
		synctest.Wait()
		if got := b.codes(); got != "UNAVAILABLE" || !strings.Contains(b.got()[0].Result.GetError(), context.DeadlineExceeded.Error()) {
			t.Errorf("answered %v", b.got())
		}
	})
}

// Connections are spread over routers by all that tells them apart, and one stays with its router.
func TestConnectionsAreSpreadOverRouters(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		b.set(live("r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8"))
		for name, conn := range map[string]func(i int) exchange.Conn{
			"slots":       func(i int) exchange.Conn { return exchange.Conn{Loop: 1, Gen: 1, Slot: uint32(i)} },
			"generations": func(i int) exchange.Conn { return exchange.Conn{Loop: 1, Slot: 1, Gen: uint32(i)} },
			"loops":       func(i int) exchange.Conn { return exchange.Conn{Gen: 1, Slot: 1, Loop: uint16(i)} },
		} {
			used := map[string]bool{}
			for i := range 100 {
				r, ok := b.pick(conn(i), nil)
				again, _ := b.pick(conn(i), nil)
				if !ok || r != again {
					t.Fatalf("connection %d goes to %v and %v", i, r, again)
				}
				used[r.ID] = true
			}
			if len(used) < 8 {
				t.Errorf("100 connections of different %s go to %d of 8 routers", name, len(used))
			}
		}
	})
}

// What can't be encoded is refused alone, with the reason, and asked of nobody.
func TestWhatCanNotBeEncoded(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		b.by = func(context.Context, string, *meshv1.ClientPublish) ([]*meshv1.ClientPublishReply_Result, error) {
			return nil, errors.New("asked")
		}
		b.item("\xff", "")
		pass(time.Second)
		if got := b.codes(); got != "INVALID_ARGUMENT" {
			t.Errorf("answered %v", b.got())
		}
	})
}

// One address fills no more than a half of what may wait, and a quarter where others have the rest:
// however much it publishes, and however slow routers are, messages of others are taken.
func TestAnAddressHasItsShareOfWhatWaits(t *testing.T) {
	for name, x := range map[string]struct{ n, size int }{"messages": {itemsWaiting, 300}, "bytes": {bytesWaiting / (128 << 10), 128 << 10}} {
		in(t, func(t *testing.T, b *bench) {
			hold := make(chan struct{})
			b.by = func(_ context.Context, _ string, req *meshv1.ClientPublish) ([]*meshv1.ClientPublishReply_Result, error) {
				<-hold
				return make(results, len(req.GetItems())), nil
			}
			publish := func(slot uint32, origin string) (refused bool) {
				before := b.Refused.Load()
				b.Publish(exchange.Conn{Slot: slot}, origin, 1, sized(x.size))
				return b.Refused.Load() > before
			}
			taken := 0
			for i := range x.n {
				if !publish(uint32(i%500), "192.0.2.1") {
					taken++
				}
			}
			if taken < x.n/2 || taken > x.n/2+1 {
				t.Errorf("%s: %d of %d of one address are taken", name, taken, x.n)
			}
			for i := range x.n / 4 {
				if publish(1000, "192.0.2.2") {
					t.Errorf("%s: number %d of another address is refused", name, i)
					break
				}
			}
			for i := range x.n/4 - 1 {
				if publish(1001, "") {
					t.Errorf("%s: number %d of one that counts for no address is refused", name, i)
					break
				}
			}
			close(hold)
			pass(time.Minute)
		})
	}
}

// Addresses take turns to ask routers: one with very many connections holds up others by one
// request.
func TestAddressesTakeTurnsToAsk(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		hold, asked := make(chan struct{}), make(chan string, 2*requestsAtATime)
		b.by = func(_ context.Context, _ string, req *meshv1.ClientPublish) ([]*meshv1.ClientPublishReply_Result, error) {
			asked <- req.GetItems()[0].GetTopic()
			<-hold
			return make(results, len(req.GetItems())), nil
		}
		const flood = 2 * requestsAtATime
		for slot := range uint32(flood) {
			b.Publish(exchange.Conn{Slot: slot + 1}, "192.0.2.1", 1, &meshv1.ClientPublish_Item{Topic: "flood"})
		}
		b.Publish(exchange.Conn{Slot: flood + 1}, "192.0.2.2", 1, &meshv1.ClientPublish_Item{Topic: "one"})
		pass(time.Second)
		if len(asked) != requestsAtATime {
			t.Fatalf("%d requests are under way", len(asked))
		}
		for range requestsAtATime {
			<-asked
		}
		for range 2 {
			hold <- struct{}{}
		}
		pass(time.Second)
		if first, second := <-asked, <-asked; first != "one" && second != "one" {
			t.Errorf("%s and %s are asked for before the other address", first, second)
		}
		close(hold)
		pass(time.Minute)
	})
}
