package pushmesh

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// publishAll publishes n messages to each topic and checks that every one was answered well, with
// its own seq.
func publishAll(t *testing.T, p *Producer, topics []string, n int) {
	t.Helper()
	var mu sync.Mutex
	seen := map[string]map[uint64]bool{}
	for i := range n {
		for _, topic := range topics {
			err := p.PublishAsync(t.Context(), Message{Topic: topic, Payload: fmt.Append(nil, i)}, func(r Result, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Errorf("%s %d: %v", topic, i, err)
					return
				}
				if seen[topic] == nil {
					seen[topic] = map[uint64]bool{}
				}
				seen[topic][r.Seq] = true
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	flush(t, p)
	mu.Lock()
	defer mu.Unlock()
	for _, topic := range topics {
		if len(seen[topic]) != n {
			t.Errorf("%s: %d different seqs were answered, want %d", topic, len(seen[topic]), n)
		}
	}
}

func checkLog(t *testing.T, r *fakeRouter, topic string, n int) {
	t.Helper()
	log := r.log(topic)
	if len(log) != n {
		t.Fatalf("%s holds %d messages, want %d: %v", topic, len(log), n, log)
	}
	for i, payload := range log {
		if payload != fmt.Sprint(i) {
			t.Fatalf("%s: %q at place %d", topic, payload, i)
		}
	}
}

func TestPublishesInOrderPipelined(t *testing.T) {
	r := newFakeRouter(t)
	r.inFlight = "200"
	p := newTestProducer(t, ProducerConfig{Addrs: []string{r.addr}})
	publishAll(t, p, []string{"room/a", "room/b", "room/c"}, 500)
	for _, topic := range []string{"room/a", "room/b", "room/c"} {
		checkLog(t, r, topic, 500)
	}
	if r.most < 2 || r.most > 200 {
		t.Fatalf("at most %d messages in a request", r.most)
	}
	res, err := p.Publish(t.Context(), Message{Topic: "room/a", Payload: []byte("500")})
	if err != nil || res.Seq != 501 || res.Epoch != 1 || res.Duplicate {
		t.Fatal(res, err)
	}
	if err := p.Close(in(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Publish(t.Context(), Message{Topic: "room/a"}); !errors.Is(err, ErrClosed) {
		t.Fatalf("Publish after Close: %v", err)
	}
}

// Streams break at random after items took effect, their answers lost; items are refused at random.
// Nothing may be lost, come twice or out of order.
func TestExactlyOnceThroughBreaksAndRefusals(t *testing.T) {
	for seed := range uint64(5) {
		r := newFakeRouter(t)
		rng := rand.New(rand.NewPCG(seed, 1))
		// the router's lock guards it
		chance := func(percent int) bool { return rng.IntN(100) < percent }
		r.drop = func(*pushmeshv1.PublishStreamRequest_Item) bool { return chance(1) }
		r.decide = func(*pushmeshv1.PublishStreamRequest_Item) *streamResult {
			switch rng.IntN(100) {
			case 0:
				return refusal(CodeRateLimited, time.Millisecond)
			case 1:
				return refusal(CodeUnavailable, time.Millisecond)
			case 2:
				return refusal(CodeOverloaded, 0)
			}
			return nil
		}
		p := newTestProducer(t, ProducerConfig{Addrs: []string{r.addr}, MaxBackoff: 5 * time.Millisecond})
		publishAll(t, p, []string{"room/a", "room/b"}, 200)
		checkLog(t, r, "room/a", 200)
		checkLog(t, r, "room/b", 200)
		if r.streams < 2 {
			t.Fatal("no stream was broken")
		}
	}
}

func TestInternalKeepsTheNumber(t *testing.T) {
	r := newFakeRouter(t)
	lied := false
	r.amend = func(res *streamResult) *streamResult {
		if lied {
			return res
		}
		lied = true // it took effect, and the answer says that nobody knows
		return refusal(CodeInternal, time.Millisecond)
	}
	p := newTestProducer(t, ProducerConfig{Addrs: []string{r.addr}})
	publishAll(t, p, []string{"room/a"}, 10)
	checkLog(t, r, "room/a", 10)
}

// A store that dies takes the answers of what it committed with it: the router says UNAVAILABLE of
// all that flew.
func TestUnavailableKeepsTheNumbers(t *testing.T) {
	r := newFakeRouter(t)
	lost := 0
	r.amend = func(res *streamResult) *streamResult {
		if lost++; lost > 20 && lost <= 120 {
			return refusal(CodeUnavailable, time.Millisecond)
		}
		return res
	}
	r.inFlight = "200"
	p := newTestProducer(t, ProducerConfig{Addrs: []string{r.addr}})
	publishAll(t, p, []string{"a"}, 300)
	flush(t, p)
	checkLog(t, r, "a", 300)
}

// A message refused for good gives its number away; what flew behind it and may have been taken,
// but was not, moves up.
func TestUnavailableBehindARefusal(t *testing.T) {
	r := newFakeRouter(t)
	down := true
	r.decide = func(it *pushmeshv1.PublishStreamRequest_Item) *streamResult {
		switch {
		case string(it.GetMessage().GetPayload()) == "bad":
			return refusal(CodePayloadTooLarge, 0)
		case down:
			down = false
			return refusal(CodeUnavailable, time.Millisecond)
		}
		return nil
	}
	p := newTestProducer(t, ProducerConfig{Addrs: []string{r.addr}})
	answers := make(chan error, 2)
	for _, payload := range []string{"bad", "good"} {
		err := p.PublishAsync(t.Context(), Message{Topic: "a", Payload: []byte(payload)}, func(_ Result, err error) { answers <- err })
		if err != nil {
			t.Fatal(err)
		}
	}
	flush(t, p)
	if err := <-answers; CodeOf(err) != CodePayloadTooLarge {
		t.Errorf("the first: %v", err)
	}
	if err := <-answers; err != nil {
		t.Errorf("the second: %v", err)
	}
	if log := r.log("a"); len(log) != 1 || log[0] != "good" {
		t.Errorf("log %v", log)
	}
}

func TestRefusedForGoodMakesRoomForTheNext(t *testing.T) {
	r := newFakeRouter(t)
	r.decide = func(it *pushmeshv1.PublishStreamRequest_Item) *streamResult {
		if string(it.GetMessage().GetPayload()) == "bad" {
			return &streamResult{Code: wirev1.Code_CODE_PAYLOAD_TOO_LARGE, Error: "too much"}
		}
		return nil
	}
	p := newTestProducer(t, ProducerConfig{Addrs: []string{r.addr}})
	refused := make(chan error, 1)
	for i, payload := range []string{"0", "bad", "1", "2"} {
		err := p.PublishAsync(t.Context(), Message{Topic: "room/a", Payload: []byte(payload)}, func(_ Result, err error) {
			if i == 1 {
				refused <- err
			} else if err != nil {
				t.Errorf("%s: %v", payload, err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	flush(t, p)
	if err := <-refused; CodeOf(err) != CodePayloadTooLarge {
		t.Fatal(err)
	}
	checkLog(t, r, "room/a", 3)
}

func TestRateLimitIsWaitedOut(t *testing.T) {
	r := newFakeRouter(t)
	const wait = time.Second
	var until time.Time
	tooEarly, came := 0, map[string]int{} // the router's lock guards them
	r.decide = func(it *pushmeshv1.PublishStreamRequest_Item) *streamResult {
		payload := string(it.GetMessage().GetPayload())
		came[payload]++
		switch {
		case until.IsZero():
			until = time.Now().Add(wait)
			return refusal(CodeRateLimited, wait)
		case time.Now().Before(until):
			// What was under way when the refusal came is no fault, but what comes a second time
			// was sent after it.
			if came[payload] > 1 || it.GetMessage().GetTopic() != "room/a" {
				tooEarly++
			}
			return refusal(CodeOutOfOrder, 0)
		}
		return nil
	}
	p := newTestProducer(t, ProducerConfig{Addrs: []string{r.addr}})
	for i := range 20 {
		err := p.PublishAsync(t.Context(), Message{Topic: "room/a", Payload: fmt.Append(nil, i)}, func(_ Result, err error) {
			if err != nil {
				t.Errorf("%d: %v", i, err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	waitUntil(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return !p.held.IsZero()
	})
	if _, err := p.Publish(t.Context(), Message{Topic: "room/b", Payload: []byte("b")}); err != nil {
		t.Error(err)
	}
	flush(t, p)
	checkLog(t, r, "room/a", 20)
	if tooEarly > 0 {
		t.Fatalf("%d messages came before the time the router gave", tooEarly)
	}
}

func TestWindowIsKept(t *testing.T) {
	r := newFakeRouter(t)
	hold := make(chan struct{})
	var seen atomic.Int32
	r.inFlight = "7"
	r.decide = func(*pushmeshv1.PublishStreamRequest_Item) *streamResult {
		seen.Add(1)
		<-hold
		return nil
	}
	p := newTestProducer(t, ProducerConfig{Addrs: []string{r.addr}, Buffer: 10})
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Add(1)
		if err := p.PublishAsync(t.Context(), Message{Topic: "room/a", Payload: fmt.Append(nil, i)}, func(Result, error) { wg.Done() }); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := p.PublishAsync(ctx, Message{Topic: "room/a"}, func(Result, error) {}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("an 11th message with a Buffer of 10: %v", err)
	}
	p.mu.Lock()
	flying := p.flying
	p.mu.Unlock()
	if flying > 50 {
		t.Fatalf("%d unanswered", flying)
	}
	close(hold)
	wg.Wait()
	p.mu.Lock()
	window := p.window
	p.mu.Unlock()
	if window != 7 {
		t.Fatalf("window %d, the router allows 7", window)
	}
	checkLog(t, r, "room/a", 10)
}

func TestContextEndsAPublish(t *testing.T) {
	r := newFakeRouter(t)
	hold := make(chan struct{})
	entered := make(chan struct{}, 100)
	r.decide = func(*pushmeshv1.PublishStreamRequest_Item) *streamResult {
		entered <- struct{}{}
		<-hold
		return nil
	}
	p := newTestProducer(t, ProducerConfig{Addrs: []string{r.addr}, Window: 1})
	ctx, cancel := context.WithCancel(t.Context())
	sent, unsent := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := p.Publish(ctx, Message{Topic: "room/a", Payload: []byte("0")})
		sent <- err
	}()
	<-entered // the router has it: the window is full
	go func() {
		_, err := p.Publish(ctx, Message{Topic: "room/a", Payload: []byte("never")})
		unsent <- err
	}()
	waitUntil(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.size == 2
	})
	cancel()
	var unknown *unknownOutcome
	if err := <-sent; !errors.As(err, &unknown) || !errors.Is(err, context.Canceled) {
		t.Fatalf("sent one: %v", err)
	}
	if err := <-unsent; errors.As(err, &unknown) || !errors.Is(err, context.Canceled) {
		t.Fatalf("unsent one: %v", err)
	}
	close(hold)
	publishAllFrom(t, p, "room/a", 1, 5)
	checkLog(t, r, "room/a", 5)
}

func publishAllFrom(t *testing.T, p *Producer, topic string, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if _, err := p.Publish(t.Context(), Message{Topic: topic, Payload: fmt.Append(nil, i)}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEphemeralIsNotRepeated(t *testing.T) {
	r := newFakeRouter(t)
	broken := false
	var times atomic.Int32
	r.decide = func(it *pushmeshv1.PublishStreamRequest_Item) *streamResult {
		if string(it.GetMessage().GetPayload()) == "once" {
			times.Add(1)
		}
		return &streamResult{Response: &pushmeshv1.PublishResponse{}}
	}
	r.drop = func(it *pushmeshv1.PublishStreamRequest_Item) bool {
		if string(it.GetMessage().GetPayload()) == "once" && !broken {
			broken = true
			return true
		}
		return false
	}
	p := newTestProducer(t, ProducerConfig{Addrs: []string{r.addr}})
	if res, err := p.Publish(t.Context(), Message{Topic: "tick"}); err != nil || res.Seq != 0 {
		t.Fatal(res, err) // tells the producer that the topic is ephemeral
	}
	_, err := p.Publish(t.Context(), Message{Topic: "tick", Payload: []byte("once")})
	var e *Error
	if !errors.As(err, &e) || !e.Unknown || e.Code != CodeUnavailable {
		t.Fatalf("got %v", err)
	}
	if _, err := p.Publish(t.Context(), Message{Topic: "tick"}); err != nil {
		t.Fatal(err)
	}
	if n := times.Load(); n != 1 {
		t.Fatalf("published %d times", n)
	}
}

// A duplicate whose first result is no longer known has no seq. The topic is durable all the same:
// what the mesh may have keeps its number and is sent again.
func TestADuplicateWithoutSeqIsDurable(t *testing.T) {
	r := newFakeRouter(t)
	var lost atomic.Int32
	forgotten := false
	r.amend = func(res *streamResult) *streamResult {
		if !forgotten {
			forgotten = true
			res.Response = &pushmeshv1.PublishResponse{Epoch: 7, Duplicate: true}
		}
		return res
	}
	r.drop = func(it *pushmeshv1.PublishStreamRequest_Item) bool {
		return string(it.GetMessage().GetPayload()) == "lost" && lost.Add(1) == 1
	}
	p := newTestProducer(t, ProducerConfig{Addrs: []string{r.addr}})
	if res, err := p.Publish(t.Context(), Message{Topic: "room/a", DedupeKey: "k"}); err != nil || !res.Duplicate {
		t.Fatal(res, err)
	}
	if res, err := p.Publish(t.Context(), Message{Topic: "room/a", Payload: []byte("lost")}); err != nil {
		t.Fatal(res, err)
	}
	if n := lost.Load(); n != 2 {
		t.Errorf("sent %d times, want twice: lost, then answered", n)
	}
}

// A number says which ones before it are settled, and, sent again, for how long nobody knows what
// became of it: not where it was refused for certain.
func TestNumbersSayWhatTheirProducerKnows(t *testing.T) {
	t.Parallel()
	const wait = 1200 * time.Millisecond
	r := newFakeRouter(t)
	var came []string
	r.decide = func(it *pushmeshv1.PublishStreamRequest_Item) *streamResult {
		late := ""
		if it.GetSentMsAgo() >= 1000 {
			late = " late"
		}
		first := !slices.ContainsFunc(came, func(c string) bool { return strings.HasPrefix(c, string(it.GetMessage().GetPayload())) })
		came = append(came, fmt.Sprintf("%s %d/%d%s", it.GetMessage().GetPayload(), it.GetProducerSeq(), it.GetSettledSeq(), late))
		switch payload := string(it.GetMessage().GetPayload()); {
		case first && payload == "refused":
			return refusal(CodeRateLimited, wait)
		case first && payload == "unknown":
			return refusal(CodeUnavailable, wait)
		}
		return nil
	}
	p := newTestProducer(t, ProducerConfig{Addrs: []string{r.addr}})
	for _, payload := range []string{"taken", "refused", "unknown", "last"} {
		if _, err := p.Publish(t.Context(), Message{Topic: "room/a", Payload: []byte(payload)}); err != nil {
			t.Fatal(err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	want := []string{"taken 1/0", "refused 2/1", "refused 2/1", "unknown 3/2", "unknown 3/2 late", "last 4/3"}
	if !slices.Equal(came, want) {
		t.Errorf("came %q, want %q", came, want)
	}
}

func TestFailsOverToTheNextRouter(t *testing.T) {
	r := newFakeRouter(t)
	p := newTestProducer(t, ProducerConfig{Addrs: []string{nobody, r.addr}, MinBackoff: time.Hour, MaxBackoff: time.Hour})
	publishAll(t, p, []string{"room/a"}, 3)
	checkLog(t, r, "room/a", 3)
}

func TestSilentRouterIsLeft(t *testing.T) {
	r := newFakeRouter(t)
	hold := make(chan struct{})
	defer close(hold)
	r.drop = func(*pushmeshv1.PublishStreamRequest_Item) bool {
		if r.streams > 1 {
			return false
		}
		r.mu.Unlock() // the next stream gets through
		<-hold
		r.mu.Lock()
		return true
	}
	p := newTestProducer(t, ProducerConfig{Addrs: []string{r.addr}, AnswerTimeout: 50 * time.Millisecond})
	publishAll(t, p, []string{"room/a"}, 3)
	checkLog(t, r, "room/a", 3)
}

func TestForgottenProducerStartsOver(t *testing.T) {
	r := newFakeRouter(t)
	p := newTestProducer(t, ProducerConfig{Addrs: []string{r.addr}})
	publishAll(t, p, []string{"room/a"}, 3)
	r.mu.Lock()
	clear(r.last) // say, a restored database
	r.mu.Unlock()
	publishAllFrom(t, p, "room/a", 3, 6)
	checkLog(t, r, "room/a", 6)
}

func TestHopelessStreamEndsTheProducer(t *testing.T) {
	p := newTestProducer(t, ProducerConfig{Addrs: []string{emptyServer(t)}})
	_, err := p.Publish(t.Context(), Message{Topic: "room/a"})
	if CodeOf(err) != CodeUnsupported {
		t.Fatal(err)
	}
}

func waitUntil(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain")
		}
	}
}

// emptyServer is a gRPC server that knows no method.
func emptyServer(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	t.Cleanup(func() {
		srv.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}
