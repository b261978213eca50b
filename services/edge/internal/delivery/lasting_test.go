package delivery

import (
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// A known answer that has nearly run out is none for what lasts: it would end before anybody could
// be asked.
func TestAKnownAnswerThatEndsSoonIsAskedAgain(t *testing.T) {
	w, _, p := permitted(t, map[string]time.Duration{"subscribe open/1": 150 * time.Millisecond})
	p.known["subscribe open/1"] = true
	c := w.ann()
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "open/1"})
	p.allowed["subscribe open/1"] = 10 * time.Second
	if len(p.asked) > 0 {
		p.answer(nil, c)
	}
	c.expect("Subscribed 1 head=0")
	w.pass(3 * time.Second)
	c.take()
	c.expect()
}

// Where an answer is of use for a second, and takes most of one, what it allows lasts.
func TestAnAnswerUnderWayIsWaitedFor(t *testing.T) {
	w, _, p := permitted(t, map[string]time.Duration{"subscribe open/1": time.Second})
	c := w.ann()
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "open/1"})
	p.answer(nil, c)
	c.expect("Subscribed 1 head=0")
	for range 20 {
		for len(p.asked) == 0 {
			w.pass(Tick)
		}
		w.pass(700 * time.Millisecond)
		p.answer(nil, c)
		c.expect()
	}
}

// A request that needs two answers has both, however long each takes.
func TestTwoAnswersAreWaitedForOnce(t *testing.T) {
	w, _, p := permitted(t, map[string]time.Duration{"subscribe open/1": 0, "group open/1": 0})
	c := w.ann()
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "open/1", Group: "g"})
	for n := 0; len(p.asked) > 0; n++ {
		if n == 6 {
			t.Fatal("it is asked for without end, and its connection is not read")
		}
		w.pass(1500 * time.Millisecond)
		p.answer(nil, c)
	}
	if w.h.Stats().Subscriptions != 1 {
		t.Fatalf("got %v", c.texts())
	}
}
