package admission

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

var start = time.Unix(1_000_000, 0)

// ask is for so many messages of the highest priority, which only the limits themselves refuse.
func ask(producer string, p *policy.Policy, n int) Ask {
	return Ask{Producer: producer, Policy: p, Messages: n, Bytes: 1000, Priority: 9}
}

func refused(t *testing.T, err error, want wirev1.Code) {
	t.Helper()
	if e := code.From(err); e == nil || e.Code != want || e.RetryAfter <= 0 {
		t.Fatalf("got %v, want %v with a time to come back", err, want)
	}
}

func TestAProducerAtThreeTimesItsLimitGetsItsLimit(t *testing.T) {
	a := New(Config{Producer: Limits{Rate: 1000, InFlight: 50}, Registry: prometheus.NewRegistry()})
	greedy, modest := 0, 0
	for ms := range 10_000 {
		now := start.Add(time.Duration(ms) * time.Millisecond)
		for range 3 {
			s, err := a.Admit(now, ask("greedy", nil, 1))
			if err != nil {
				refused(t, err, wirev1.Code_CODE_RATE_LIMITED)
				continue
			}
			greedy++
			s.Release()
		}
		if ms%2 == 0 {
			s, err := a.Admit(now, ask("modest", nil, 1))
			if err != nil {
				t.Fatalf("the other producer was refused: %v", err)
			}
			modest++
			s.Release()
		}
	}
	if greedy < 10_000 || greedy > 10_000+100 {
		t.Errorf("%d admitted in 10 s at 1,000/s with a burst of 100", greedy)
	}
	if modest != 5000 {
		t.Errorf("%d of the other", modest)
	}
	if n := testutil.ToFloat64(a.refused[byProducerRate]); int(n) != 30_000-greedy {
		t.Errorf("%v refusals counted", n)
	}
}

func TestTheTimeToComeBackIsRight(t *testing.T) {
	a := New(Config{Producer: Limits{Rate: 10}})
	for range 10 {
		if _, err := a.Admit(start, ask("p", nil, 1)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := a.Admit(start, ask("p", nil, 1))
	refused(t, err, wirev1.Code_CODE_RATE_LIMITED)
	wait := code.From(err).RetryAfter
	if wait != 100*time.Millisecond {
		t.Errorf("come back after %v", wait)
	}
	if _, err := a.Admit(start.Add(wait), ask("p", nil, 1)); err != nil {
		t.Errorf("refused when it came back: %v", err)
	}
}

func TestInFlight(t *testing.T) {
	a := New(Config{Producer: Limits{InFlight: 3}})
	var slots []Slot
	for range 3 {
		s, err := a.Admit(start, ask("p", nil, 1))
		if err != nil {
			t.Fatal(err)
		}
		slots = append(slots, s)
	}
	_, err := a.Admit(start, ask("p", nil, 1))
	refused(t, err, wirev1.Code_CODE_RATE_LIMITED)
	if _, err := a.Admit(start, ask("q", nil, 1)); err != nil {
		t.Errorf("another producer: %v", err)
	}
	slots[0].Release()
	if _, err := a.Admit(start, ask("p", nil, 1)); err != nil {
		t.Errorf("after a release: %v", err)
	}
}

func TestManyTopicsOfOneCallArePaidOff(t *testing.T) {
	a := New(Config{Producer: Limits{Rate: 1000, InFlight: 50}})
	s, err := a.Admit(start, ask("p", nil, 5000))
	if err != nil {
		t.Fatalf("alone: %v", err)
	}
	_, err = a.Admit(start, ask("p", nil, 1))
	refused(t, err, wirev1.Code_CODE_RATE_LIMITED)
	for range 5000 {
		s.One().Release()
	}
	_, err = a.Admit(start.Add(4*time.Second), ask("p", nil, 1))
	refused(t, err, wirev1.Code_CODE_RATE_LIMITED)
	if _, err := a.Admit(start.Add(5*time.Second), ask("p", nil, 1)); err != nil {
		t.Errorf("after it paid: %v", err)
	}
}

func TestOverall(t *testing.T) {
	a := New(Config{Overall: Limits{InFlight: 2}})
	first, _ := a.Admit(start, ask("a", nil, 1))
	if _, err := a.Admit(start, ask("b", nil, 1)); err != nil {
		t.Fatal(err)
	}
	_, err := a.Admit(start, ask("c", nil, 1))
	refused(t, err, wirev1.Code_CODE_OVERLOADED)
	if n := testutil.ToFloat64(a.refused[byWork]); n != 1 {
		t.Errorf("%v refusals counted", n)
	}
	first.Release()
	if _, err := a.Admit(start, ask("c", nil, 1)); err != nil {
		t.Errorf("after a release: %v", err)
	}

	a = New(Config{Overall: Limits{Rate: 100}})
	for i := range 10 {
		if _, err := a.Admit(start, ask(fmt.Sprint(i), nil, 1)); err != nil {
			t.Fatal(err)
		}
	}
	_, err = a.Admit(start, ask("x", nil, 1))
	refused(t, err, wirev1.Code_CODE_OVERLOADED)
}

func TestANamespaceHasLimitsOfItsOwn(t *testing.T) {
	a := New(Config{Producer: Limits{Rate: 1000, InFlight: 1}})
	a.Share(2)
	wide := &policy.Policy{Prefix: "wide", ProducerInFlight: 6, ProducerRate: 10_000}
	if got, want := a.Limits("p", wide), (Limits{Rate: 5000, InFlight: 3}); got != want {
		t.Errorf("a router's share is %v, want %v", got, want)
	}
	for range 3 {
		if _, err := a.Admit(start, ask("p", wide, 1)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := a.Admit(start, ask("p", wide, 1))
	refused(t, err, wirev1.Code_CODE_RATE_LIMITED)
	if _, err := a.Admit(start, ask("p", &policy.Policy{Prefix: "plain"}, 1)); err != nil {
		t.Errorf("elsewhere: %v", err)
	}
	wider := &policy.Policy{Prefix: "wide", ProducerInFlight: 8, ProducerRate: 10_000}
	if _, err := a.Admit(start, ask("p", wider, 1)); err != nil {
		t.Errorf("after the policy changed: %v", err)
	}
}

func TestIdleProducersAreForgottenAndTheTableIsBounded(t *testing.T) {
	a := New(Config{Producer: Limits{Rate: 1000, InFlight: 50}})
	const flood = stripes * maxProducers * 2
	for i := range flood {
		s, err := a.Admit(start, ask(fmt.Sprint("p", i), nil, 1))
		if err == nil {
			s.Release()
		}
	}
	count := func() (n int) {
		for i := range a.stripes {
			n += len(a.stripes[i].budgets)
		}
		return n
	}
	if n := count(); n > stripes*(maxProducers+1) {
		t.Errorf("%d producers are remembered", n)
	}
	for i := range 10_000 { // some for every stripe
		if s, err := a.Admit(start.Add(time.Minute), ask(fmt.Sprint("q", i), nil, 1)); err == nil {
			s.Release()
		}
	}
	if n := count(); n > 10_000+stripes {
		t.Errorf("%d producers are remembered after a minute", n)
	}
}

// What is in flight is never more than the limit (but for one call alone), and never lost count of.
func TestInFlightIsNeverLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := New(Config{Producer: Limits{InFlight: 10}, Overall: Limits{InFlight: 15}})
		open := map[string][]Slot{}
		sizes := map[string][]int{}
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			p := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "producer")
			if len(open[p]) > 0 && rapid.Bool().Draw(t, "release") {
				open[p][0].Release()
				open[p], sizes[p] = open[p][1:], sizes[p][1:]
				continue
			}
			n := rapid.IntRange(1, 12).Draw(t, "n")
			held, all := total(sizes[p]), total(sizes["a"])+total(sizes["b"])
			s, err := a.Admit(start, ask(p, nil, n))
			may := (held == 0 || held+n <= 10) && (all == 0 || all+n <= 15)
			nearlyFull := all >= 12 // the highest priority may be refused already, or still
			if may != (err == nil) && (!may || !nearlyFull) {
				t.Fatalf("%d more with %d of %d in flight: %v", n, held, all, err)
			}
			if err == nil {
				open[p], sizes[p] = append(open[p], s), append(sizes[p], n)
			}
		}
	})
}

func total(ns []int) (sum int) {
	for _, n := range ns {
		sum += n
	}
	return sum
}

// Two calls may have their turns in the other order than their times: what lies between is earned
// once all the same.
func TestTimeIsEarnedOnce(t *testing.T) {
	a := New(Config{Overall: Limits{Rate: 2000}, Producer: Limits{Rate: 1000}, Registry: prometheus.NewRegistry()})
	admitted := map[string]int{}
	for ms := range 1000 {
		now := start.Add(time.Duration(ms) * time.Millisecond)
		for i := range 8 {
			for _, producer := range []string{"one", "two", "three"} {
				if s, err := a.Admit(now.Add(time.Duration(i%2)*-20*time.Millisecond), ask(producer, nil, 1)); err == nil {
					admitted[producer]++
					admitted["all"]++
					s.Release()
				}
			}
		}
	}
	if n := admitted["one"]; n > 1100 {
		t.Errorf("%d of one producer admitted in a second at 1,000/s with a burst of 100", n)
	}
	if n := admitted["all"]; n > 2200 {
		t.Errorf("%d admitted in a second at 2,000/s with a burst of 200", n)
	}
}
