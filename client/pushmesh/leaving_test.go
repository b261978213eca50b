package pushmesh

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/client/internal/reconnect"
	"github.com/pushmesh/pushmesh/proto/window"
)

// Who moves to another router sends nothing more, waits for what flies, so long, and then goes.
func TestMovingWaitsForAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		p := idleProducer(ProducerConfig{})
		p.offer(t, Message{Topic: "a", Payload: []byte("x")})
		it := p.fly(t, "x")[0]
		p.offer(t, Message{Topic: "b", Payload: []byte("y")})
		p.leave(reconnect.Place{Addr: "b:1"})
		select {
		case <-p.wake:
		default:
			t.Error("the sender is not woken")
		}
		by := p.leaving.by
		if d := by.Sub(now); d != moveWithin {
			t.Errorf("goes in %v", d)
		}
		var move *moving
		if req, at, err := p.gather(by.Add(-1)); req != nil || err != nil || at != by {
			t.Errorf("sent %v, %v, looks again at %v", req, err, at)
		}
		if _, _, err := p.gather(by); !errors.As(err, &move) || move.to.Addr != "b:1" {
			t.Errorf("stays: %v", err)
		}
		p.answer(it, taken(1))
		if _, _, err := p.gather(now); !errors.As(err, &move) {
			t.Errorf("stays with nothing under way: %v", err)
		}
		p.stay()
		p.fly(t, "y")
	})
}

// A router that refuses a topic is worth leaving after a second, and each time that it was left in
// vain twice as long, up to a bound; a message that is taken, or given up, ends that.
func TestARouterThatRefusesIsAiling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		p := idleProducer(ProducerConfig{})
		l := &lane{waiting: make([]*outgoing, 1)}
		for i := range maxHops + 3 {
			p.stay()
			p.sicken(l, now)
			p.sicken(&lane{}, now.Add(time.Minute)) // the first one counts
			wait := sickFor << min(i, maxHops)
			if p.ailing(now.Add(wait-1)) || !p.ailing(now.Add(wait)) {
				t.Errorf("left %d times in vain, it is not left after %v", i, wait)
			}
			p.leave(reconnect.Place{})
		}
		if p.heal(&lane{}); p.sick != l || p.hops != maxHops {
			t.Error("another topic's message heals it")
		}
		if p.heal(l); p.sick != nil || p.hops != 0 {
			t.Error("it stays ill")
		}
		p.leave(reconnect.Place{}) // of another reason
		if p.hops != 0 {
			t.Error("moving is no illness")
		}
		p.sicken(l, now)
		l.waiting = nil
		if p.ailing(now.Add(time.Hour)) || p.sick != nil {
			t.Error("nobody waits, and it ails")
		}
	})
}

// Silence counts from the first message that is unanswered, or the last answer.
func TestHowLongARouterIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		p := idleProducer(ProducerConfig{})
		if d := p.silentFor(now); d != 0 {
			t.Errorf("silent for %v with nothing to say", d)
		}
		p.offer(t, Message{Topic: "a", Payload: []byte("x")})
		p.fly(t, "x")
		p.offer(t, Message{Topic: "b", Payload: []byte("y")})
		pass(time.Second)
		y := p.fly(t, "y")[0]
		if d := p.silentFor(now.Add(3 * time.Second)); d != 3*time.Second {
			t.Errorf("silent for %v", d)
		}
		pass(time.Second)
		p.answer(y, taken(1))
		if d := p.silentFor(time.Now().Add(time.Second)); d != time.Second {
			t.Errorf("silent for %v", d)
		}
	})
}

// A message that was not sent can be withdrawn; one that the mesh may have, or that was answered,
// can't.
func TestWithdrawing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := idleProducer(ProducerConfig{})
		offer := func(payload string) *outgoing {
			o, err := p.enqueue(t.Context(), Message{Topic: "a", Payload: []byte(payload)}, func(Result, error) {})
			if err != nil {
				t.Fatal(err)
			}
			return o
		}
		first := offer("0")
		it := p.fly(t, "0")[0]
		second, third := offer("1"), offer("2")
		changed := p.changed
		if p.withdraw(first) || !p.withdraw(second) || p.withdraw(second) || p.size != 2 {
			t.Errorf("%d wait", p.size)
		}
		select {
		case <-changed:
		default:
			t.Error("who waits for room is not told")
		}
		p.answer(it, refusal(CodeUnavailable, time.Millisecond))
		if p.withdraw(first) {
			t.Error("the mesh may have it")
		}
		pass(time.Hour)
		if its := p.fly(t, "0", "2"); its[0].GetProducerSeq() != 1 || its[1].GetProducerSeq() != 2 || third.seq != 2 {
			t.Error(its)
		}
	})
}

// With MaxWait, what could not be sent in time is given up, the oldest first, and what may have
// been taken is not.
func TestWhatWaitsTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		p := idleProducer(ProducerConfig{MaxWait: time.Minute})
		p.credit = window.New(p.cfg.MaxWait/2, p.cfg.Buffer)
		sent := p.offer(t, Message{Topic: "a", Payload: []byte("sent")})
		it := p.fly(t, "sent")[0]
		p.answer(it, refusal(CodeUnavailable, 0))
		behind := p.offer(t, Message{Topic: "a", Payload: []byte("behind")})
		late, young := p.offer(t, Message{Topic: "b", Payload: []byte("late")}), p.offer(t, Message{Topic: "b", Payload: []byte("young")})
		p.topics["b"].waiting[1].at = now.Add(time.Hour)
		for _, x := range []struct {
			at   time.Time
			want int
		}{{now.Add(time.Minute), 0}, {now.Add(time.Minute + 1), 1}} {
			p.mu.Lock()
			calls := p.expired(x.at)
			p.callBack(calls)
			p.mu.Unlock()
			if len(calls) != x.want {
				t.Errorf("%d given up, want %d", len(calls), x.want)
			}
		}
		if e := (*Error)(nil); late.times != 1 || !errors.As(late.err, &e) || e.Code != CodeUnavailable || e.RetryAfter != time.Minute || e.Unknown {
			t.Errorf("%+v", late)
		}
		if sent.times+behind.times+young.times != 0 || p.size != 3 {
			t.Errorf("%+v, %+v, %+v", sent, behind, young)
		}
		p.connected(true)
		p.held = now.Add(45 * time.Second)
		if e := p.crowded(now); e.Code != CodeOverloaded || e.RetryAfter != 45*time.Second {
			t.Errorf("%+v", e)
		}
		if e := p.crowded(now.Add(40 * time.Second)); e.RetryAfter != 30*time.Second {
			t.Errorf("%+v", e)
		}
	})
}

// How long ago a message was sent is said by the clock that says more, and not where it is less
// than a second.
func TestHowLongAgo(t *testing.T) {
	now := time.Now()
	for d, want := range map[time.Duration]uint64{0: 0, time.Second - 1: 0, time.Second: 1000, 90 * time.Second: 90_000, -time.Hour: 0} {
		if got := ago(now.Add(d), now); got != want {
			t.Errorf("after %v: %d ms, want %d", d, got, want)
		}
	}
	if got := ago(now.Round(0).Add(time.Hour), now); got != 3_600_000 { // the machine slept
		t.Errorf("%d ms", got)
	}
}

// A router's window is kept to, and the configuration's where that is less.
func TestWhatARouterAllows(t *testing.T) {
	for _, x := range []struct{ said, config, want int }{{0, 0, defaultInFlight}, {-1, 0, defaultInFlight}, {7, 0, 7}, {7, 3, 3}, {3, 7, 3}, {0, 7, 7}, {0, 99, defaultInFlight}} {
		p := &Producer{cfg: ProducerConfig{Window: x.config}}
		if p.allow(x.said); p.window != x.want {
			t.Errorf("a router allows %d, and the configuration %d: %d", x.said, x.config, p.window)
		}
	}
}

// What is asked of the mesh beside the payload is asked with it; what is not set is not.
func TestTimesOfARequest(t *testing.T) {
	if r := request(Message{Topic: "a"}); r.GetTtl() != nil || r.GetDeliverAt() != nil {
		t.Error(r)
	}
	at := time.Unix(1_000_000, 5000)
	if r := request(Message{TTL: time.Minute, DeliverAt: at}); r.GetTtl().AsDuration() != durationpb.New(time.Minute).AsDuration() || !r.GetDeliverAt().AsTime().Equal(at) {
		t.Error(r)
	}
}
