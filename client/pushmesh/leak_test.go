package pushmesh

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestCloseLeavesNoGoroutine(t *testing.T) {
	before := goleak.IgnoreCurrent()
	e, r := newFakeEdge(t), newFakeRouter(t)
	s, err := NewSubscriber(SubscriberConfig{Addrs: []string{e.addr()}, Agent: t.Name(), DialTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	got := newSeqLog()
	start(t, s, "room/a", got.handle, WithAck())
	c := e.welcome()
	c.subscribed(7, 0, false)
	c.message("room/a", 1, 0)
	c.ackedThrough("room/a", 1)
	// nobody listens: it waits between tries
	lost, err := NewSubscriber(SubscriberConfig{Addrs: []string{nobody}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewProducer(ProducerConfig{Addrs: []string{r.addr}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Publish(t.Context(), Message{Topic: "room/a"}); err != nil {
		t.Fatal(err)
	}
	for _, close := range []func(context.Context) error{s.Close, lost.Close, p.Close} {
		if err := close(in(t, patience)); err != nil {
			t.Error(err)
		}
	}
	c.close()
	e.stop()
	r.stop()
	noneLeft(t, before)
}

// noneLeft waits until no goroutine is left but those that were there before.
// What was told to end may take a busy machine a while.
func noneLeft(t *testing.T, before goleak.Option) {
	t.Helper()
	var left error
	for began := time.Now(); time.Since(began) < patience; {
		if left = goleak.Find(before); left == nil {
			return
		}
	}
	t.Error(left)
}
