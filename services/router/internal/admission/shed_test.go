package admission

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/shed"
)

// under is an admission whose store and way to edges are under a pressure that the test sets.
type under struct {
	*Admission
	store, edges         float64
	storeGate, edgesGate shed.Gate
}

func pressed(cfg Config) *under {
	u := &under{}
	cfg.Store = func(_ string, priority uint32) (float64, bool) { return u.store, u.storeGate.Admits(u.store, priority) }
	cfg.Edges = func(priority uint32) (float64, bool) { return u.edges, u.edgesGate.Admits(u.edges, priority) }
	u.Admission = New(cfg)
	return u
}

func (u *under) durable(priority uint32) error {
	return u.one(Ask{Producer: "p", Topic: "room/1", Durable: true, Priority: priority})
}

func (u *under) ephemeral(priority uint32) error {
	return u.one(Ask{Producer: "p", Priority: priority})
}

func (u *under) one(q Ask) error {
	q.Messages, q.Bytes = 1, 1000
	s, err := u.Admit(start, q)
	s.Release()
	return err
}

func TestASlowStoreRefusesLowDurableMessagesOnly(t *testing.T) {
	u := pressed(Config{})
	u.store = 0.72
	for priority := range uint32(10) {
		if err := u.ephemeral(priority); err != nil {
			t.Errorf("ephemeral, priority %d: %v", priority, err)
		}
		err := u.durable(priority)
		if priority >= 5 && err != nil {
			t.Errorf("durable, priority %d: %v", priority, err)
		}
		if priority < 5 {
			refused(t, err, wirev1.Code_CODE_OVERLOADED)
		}
	}
	if n := testutil.ToFloat64(u.refused[byStore]); n != 5 {
		t.Errorf("%v refusals counted", n)
	}
	u.store = 1
	refused(t, u.durable(9), wirev1.Code_CODE_OVERLOADED)
	if err := u.one(Ask{Topic: "room/1", Durable: true}); err == nil {
		t.Error("what is committed was taken although nothing may be")
	}
	u.store = 0.8
	if err := u.one(Ask{Topic: "room/1", Durable: true}); err != nil {
		t.Errorf("what is committed comes after no priority: %v", err)
	}
	u.store = 0
	if err := u.durable(0); err != nil {
		t.Errorf("after it: %v", err)
	}
}

func TestAFullWayToEdgesRefusesEveryKind(t *testing.T) {
	u := pressed(Config{})
	u.edges = 0.6
	refused(t, u.ephemeral(0), wirev1.Code_CODE_OVERLOADED)
	refused(t, u.durable(0), wirev1.Code_CODE_OVERLOADED)
	if err := u.ephemeral(3); err != nil {
		t.Error(err)
	}
	if n := testutil.ToFloat64(u.refused[byEdges]); n != 2 {
		t.Errorf("%v refusals counted", n)
	}
}

func TestALateRouterRefusesEveryKind(t *testing.T) {
	a := New(Config{Lag: func() float64 { return 0.75 }})
	for priority := range uint32(10) {
		for _, q := range []Ask{{Topic: "live/1"}, {Topic: "room/1", Durable: true}, {Messages: 3}} {
			q.Producer, q.Priority, q.Messages = "p", priority, max(q.Messages, 1)
			s, err := a.Admit(start, q)
			s.Release()
			if priority < 5 {
				refused(t, err, wirev1.Code_CODE_OVERLOADED)
			} else if err != nil {
				t.Errorf("%+v: %v", q, err)
			}
		}
	}
	if s, err := a.Admit(start, Ask{Topic: "room/1", Durable: true, Messages: 1}); err != nil {
		t.Errorf("what is committed: %v", err)
	} else {
		s.Release()
	}
	before := testutil.ToFloat64(a.refused[byLag])
	refused(t, a.RefuseLate(start, "p", 7), wirev1.Code_CODE_OVERLOADED)
	if n := testutil.ToFloat64(a.refused[byLag]) - before; n != 7 || before != 5*(1+1+3) {
		t.Errorf("%v refusals counted, then %v of 7", before, n)
	}
	if New(Config{}).Lag() != 0 {
		t.Error("late without a lag")
	}
}

func TestWorkIsBoundedByBytesToo(t *testing.T) {
	a := New(Config{MaxBytes: 1_000_000})
	q := Ask{Producer: "p", Messages: 1, Bytes: 100_000, Priority: 9}
	var slots []Slot
	for {
		s, err := a.Admit(start, q)
		if err != nil {
			refused(t, err, wirev1.Code_CODE_OVERLOADED)
			break
		}
		slots = append(slots, s)
	}
	if len(slots) != 10 {
		t.Errorf("%d of 100,000 bytes in a million", len(slots))
	}
	q.Priority = 0
	for len(slots) > 4 {
		if _, err := a.Admit(start, q); err == nil {
			t.Errorf("the lowest priority got in beside %d of 10", len(slots))
		}
		slots[0].Release()
		slots = slots[1:]
	}
	slots[0].Release()
	if s, err := a.Admit(start, q); err != nil {
		t.Errorf("beside 3 of 10: %v", err)
	} else {
		s.Release()
	}
	for _, s := range slots[1:] {
		s.Release()
	}
	s, err := a.Admit(start, Ask{Producer: "p", Messages: 100, Bytes: 100_000, Priority: 0})
	if err != nil {
		t.Fatalf("one call alone, however large: %v", err)
	}
	for range 100 {
		s.One().Release()
	}
	if n := a.bytes.Load(); n != 0 {
		t.Errorf("%d bytes in work when all is done", n)
	}
}

func TestRefusalsOfOverloadSayLaterTheWorseItIs(t *testing.T) {
	u := pressed(Config{})
	mean := func(pressure float64) (sum time.Duration) {
		u.store = pressure
		for range 200 {
			sum += code.From(u.durable(0)).RetryAfter / 200
		}
		return sum
	}
	if low, high := mean(0.55), mean(0.95); high < 5*low {
		t.Errorf("%v, then %v", low, high)
	}
}

func TestSharesFollowTheRouters(t *testing.T) {
	a := New(Config{Producer: Limits{Rate: 900, InFlight: 90}, Overall: Limits{Rate: 3000, InFlight: 300}})
	// second counts what is admitted in a second of 2,000 messages of one producer.
	second := func(from time.Time, producers ...string) (n int) {
		for ms := range 1000 {
			for _, p := range producers {
				for range 2 {
					if s, err := a.Admit(from.Add(time.Duration(ms)*time.Millisecond), ask(p, nil, 1)); err == nil {
						n++
						s.Release()
					}
				}
			}
		}
		return n
	}
	near := func(got, want int) {
		t.Helper()
		if got < want*9/10 || got > want*12/10 {
			t.Errorf("%d in a second, want about %d", got, want)
		}
	}
	near(second(start, "p"), 900)
	a.Share(3)
	second(start.Add(time.Second), "p") // what was saved is spent
	near(second(start.Add(2*time.Second), "p"), 300)
	if l := a.Limits("p", nil); l != (Limits{Rate: 300, InFlight: 30}) {
		t.Errorf("a third is %v", l)
	}
	near(second(start.Add(3*time.Second), "p", "q", "r", "s", "t"), 1000) // of all together
	a.Share(1)
	near(second(start.Add(5*time.Second), "p"), 900)
	a.Share(0) // there is always one
	near(second(start.Add(6*time.Second), "p"), 900)
}

func TestOnlyWhoIgnoresRefusalsIsKeptWaiting(t *testing.T) {
	a := New(Config{Producer: Limits{Rate: 100, InFlight: 10}})
	now := start
	// A producer that waits as it is told is never kept waiting, however much it would like to
	// send.
	for range 2000 {
		s, err := a.Admit(now, ask("polite", nil, 1))
		s.Release()
		if err == nil {
			now = now.Add(time.Millisecond)
			continue
		}
		if d := a.Penalty(now, "polite"); d != 0 {
			t.Fatalf("kept waiting for %v", d)
		}
		now = now.Add(code.From(err).RetryAfter)
	}
	// One that sends all the time is read from slower and slower, until its refusals come no faster
	// than they are forgiven.
	refusals, kept := 0, time.Duration(0)
	for end := now.Add(10 * time.Second); now.Before(end); now = now.Add(100 * time.Microsecond) {
		s, err := a.Admit(now, ask("rude", nil, 1))
		s.Release()
		if err != nil {
			refusals++
			d := a.Penalty(now, "rude")
			kept += d
			now = now.Add(d)
		}
	}
	if refusals > 100+2*10*100 || kept < 5*time.Second {
		t.Errorf("%d refusals in 10 s, kept waiting for %v", refusals, kept)
	}
	if d := a.Penalty(now.Add(2*time.Second), "rude"); d != 0 {
		t.Errorf("still kept waiting for %v when it had been quiet", d)
	}
}

// Calls that a producer has waiting for their penalty are answered at its rate, however many they
// are; those of another one are not held up.
func TestCallsThatAreRefusedAreAnsweredAtTheProducersRate(t *testing.T) {
	a := New(Config{Producer: Limits{Rate: 1000, InFlight: 50}})
	now := start
	refuse := func(producer string, n int) {
		for range n {
			_, _ = a.Admit(now, ask(producer, nil, 1))
		}
	}
	refuse("rude", 1000)
	tenths := [11]int{}
	for range 3000 {
		refuse("rude", 1)
		d := a.CallPenalty(now, "rude")
		if d < leastPenalty || d > mostCallPenalty {
			t.Fatalf("a call waits for %v", d)
		}
		tenths[d/(100*time.Millisecond)]++
	}
	for i, n := range tenths[:10] {
		if n > 125 { // the first ones wait for the bucket
			t.Errorf("%d calls are answered in tenth %d of a second", n, i)
		}
	}
	if d := a.CallPenalty(now, "polite"); d != 0 {
		t.Errorf("another one waits for %v", d)
	}
	if d := a.CallPenalty(now.Add(2*time.Second), "rude"); d != 0 {
		t.Errorf("after two seconds a call waits for %v", d)
	}
}
