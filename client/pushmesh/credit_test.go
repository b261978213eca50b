package pushmesh

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// outcomes collects what becomes of messages.
type outcomes struct {
	mu   sync.Mutex
	errs map[string]error
	c    chan string // payloads, as they are answered
}

func newOutcomes() *outcomes { return &outcomes{errs: map[string]error{}, c: make(chan string, 1024)} }

func (o *outcomes) publish(t *testing.T, p *Producer, m Message) error {
	t.Helper()
	return p.PublishAsync(t.Context(), m, func(_ Result, err error) {
		o.mu.Lock()
		o.errs[string(m.Payload)] = err
		o.mu.Unlock()
		o.c <- string(m.Payload)
	})
}

// next waits for the next answer, and says to what it is.
func (o *outcomes) next(t *testing.T) (payload string, err error) {
	t.Helper()
	select {
	case payload = <-o.c:
	case <-time.After(patience):
		t.Fatal("no answer")
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return payload, o.errs[payload]
}

func wantRefusal(t *testing.T, err error, c Code, least time.Duration) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Code != c || e.RetryAfter < least || !e.Retryable() {
		t.Fatalf("%v (%+v), want %v to come back in %v", err, e, c, least)
	}
}

// connect has a first message taken. Where the machine is busy, some are given up before there is a
// stream.
func connect(t *testing.T, p *Producer) {
	t.Helper()
	insist(t, p, Message{Topic: "room/first", Priority: 9})
}

// insist publishes a message until it is taken.
func insist(t *testing.T, p *Producer, m Message) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		_, err := p.Publish(t.Context(), m)
		if err == nil {
			return
		}
		if e := (*Error)(nil); !errors.As(err, &e) || !e.Retryable() || e.Unknown || time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// What finds no room is refused at once, low priorities first, and what found some is answered as
// ever.
func TestAProducerInAHurryRefusesInsteadOfWaiting(t *testing.T) {
	r := newFakeRouter(t)
	hold := make(chan struct{})
	r.decide = func(it *pushmeshv1.PublishStreamRequest_Item) *streamResult {
		if it.GetMessage().GetTopic() != "room/first" {
			<-hold
		}
		return nil
	}
	p := newTestProducer(t, ProducerConfig{Addrs: []string{r.addr}, Buffer: 20, MaxWait: time.Hour})
	connect(t, p)
	got, taken := newOutcomes(), 0
	for _, of := range []struct {
		priority uint32
		most     int
	}{{0, 11}, {4, 15}, {9, 20}} {
		for {
			err := got.publish(t, p, Message{Topic: "room/a", Payload: fmt.Append(nil, taken), Priority: of.priority})
			if err != nil {
				wantRefusal(t, err, CodeOverloaded, time.Minute)
				break
			}
			taken++
		}
		if taken != of.most {
			t.Fatalf("%d taken with priority %d, want %d", taken, of.priority, of.most)
		}
	}
	close(hold)
	for range taken {
		if payload, err := got.next(t); err != nil {
			t.Errorf("%s: %v", payload, err)
		}
	}
	flush(t, p)
	if n := len(r.log("room/a")); n != taken {
		t.Errorf("%d stored, want %d", n, taken)
	}
}

// A refusal of the router that says to come back later than the message may wait is the caller's;
// an earlier one is the producer's.
func TestAProducerInAHurryPassesRefusalsOn(t *testing.T) {
	r := newFakeRouter(t)
	refused := map[string]int{}
	r.decide = func(it *pushmeshv1.PublishStreamRequest_Item) *streamResult {
		payload := string(it.GetMessage().GetPayload())
		refused[payload]++
		switch {
		case payload == "late":
			return refusal(CodeOverloaded, 2*time.Hour)
		case payload == "soon" && refused[payload] == 1:
			return refusal(CodeRateLimited, time.Millisecond)
		}
		return nil
	}
	p := newTestProducer(t, ProducerConfig{Addrs: []string{r.addr}, MaxWait: time.Hour})
	connect(t, p)
	for _, payload := range []string{"before", "late", "soon", "after"} {
		_, err := p.Publish(t.Context(), Message{Topic: "room/a", Payload: []byte(payload), Priority: 9})
		if payload == "late" {
			wantRefusal(t, err, CodeOverloaded, 2*time.Hour)
		} else if err != nil {
			t.Errorf("%s: %v", payload, err)
		}
	}
	flush(t, p)
	if log := r.log("room/a"); !slices.Equal(log, []string{"before", "soon", "after"}) {
		t.Errorf("stored %q", log)
	}
}

// What could not be sent is given up in time, and a message that the mesh may have is not.
func TestAProducerInAHurryWithoutARouter(t *testing.T) {
	r := newFakeRouter(t)
	broken := false
	r.drop = func(it *pushmeshv1.PublishStreamRequest_Item) bool {
		first := !broken && string(it.GetMessage().GetPayload()) == "sent"
		broken = broken || first
		return first
	}
	const wait = 20 * time.Millisecond
	p := newTestProducer(t, ProducerConfig{Addrs: []string{r.addr}, MaxWait: wait, MinBackoff: 20 * wait})
	connect(t, p)
	insist(t, p, Message{Topic: "room/a", Payload: []byte("sent"), Priority: 9})
	if log := r.log("room/a"); len(log) != 1 || !broken {
		t.Errorf("stored %q", log)
	}
	r.stop()
	for { // the producer notices after a while
		_, err := p.Publish(t.Context(), Message{Topic: "room/b", Priority: 9, Ephemeral: true})
		if err == nil {
			t.Fatal("published by nobody")
		}
		if e := (*Error)(nil); errors.As(err, &e) && e.Unknown {
			continue // it was sent
		}
		if CodeOf(err) != CodeOverloaded { // there is a stream, as far as is known
			wantRefusal(t, err, CodeUnavailable, wait)
			break
		}
	}
}

// Beside a producer that waits, with three times as much as their routers take, one in a hurry gets
// as much through, and in time.
func TestAProducerInAHurryIsInTime(t *testing.T) {
	const (
		each  = 2 * time.Millisecond
		total = 900
	)
	offer := func(wait time.Duration) (ok int, p99 time.Duration) {
		r := newFakeRouter(t)
		r.decide = func(*pushmeshv1.PublishStreamRequest_Item) *streamResult {
			<-time.After(each) // what a message costs
			return nil
		}
		p := newTestProducer(t, ProducerConfig{Addrs: []string{r.addr}, MaxWait: wait})
		connect(t, p)
		var mu sync.Mutex
		var took []time.Duration
		began := time.Now()
		for i := range total {
			due := began.Add(time.Duration(i) * each / 3)
			<-time.After(time.Until(due))
			err := p.PublishAsync(context.Background(), Message{Topic: fmt.Sprint("live/", i%16), Priority: uint32(i % 10)}, func(_ Result, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					took = append(took, time.Since(due))
				}
			})
			if err != nil && CodeOf(err) != CodeOverloaded {
				t.Error(err)
			}
		}
		flush(t, p)
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(took)
		return len(took), took[len(took)*99/100]
	}
	var patient, hurried time.Duration
	var ok int
	var both sync.WaitGroup
	both.Go(func() { _, patient = offer(0) })
	both.Go(func() { ok, hurried = offer(60 * time.Millisecond) })
	both.Wait()
	// The other one takes three times as long as what is due, and its last messages are late by two
	// thirds of that: where a message costs more, on a busy machine, by more.
	const span = total * each / 3
	within := int(total * span / (span + patient)) // as many as its router takes while they come
	if hurried > patient/2 || ok < within/2 {
		t.Errorf("%d of %d taken, %v late; without MaxWait %v", ok, total, hurried, patient)
	}
}
