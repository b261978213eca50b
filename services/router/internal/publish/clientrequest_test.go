package publish

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/admission"
)

// taker is a Clients without NATS, in a bubble of fake time.
type taker struct {
	*Clients
	t *testing.T
}

// taking runs f with a router to which clients may publish under "open".
func taking(t *testing.T, l admission.Limits, routers int, f func(c *taker)) {
	synctest.Test(t, func(t *testing.T) {
		p := limitedTo(l, &pushmeshv1.Namespace{Prefix: "open", Policy: &pushmeshv1.Policy{ClientPublish: true}})
		p.cfg.Admission.Share(routers)
		c := &taker{NewClients(p, nil, "r"), t}
		done := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(done)
			c.goOn(ctx)
		}()
		f(c)
		if n := c.patient.Load(); n != 0 {
			t.Errorf("%d bytes are patient at the end", n)
		}
		cancel()
		<-done
	})
}

// ask sends n messages in one request and gives their results, and how long they took.
func (c *taker) ask(user, id, topic string, n int) ([]*meshv1.ClientPublishReply_Result, time.Duration) {
	c.t.Helper()
	began := time.Now()
	c.send(user, id, topic, n)
	return c.answer(n), time.Since(began)
}

func (c *taker) send(user, id, topic string, n int) {
	c.t.Helper()
	in := &meshv1.ClientPublish{EdgeId: "e"}
	for i := range n {
		in.Items = append(in.Items, &meshv1.ClientPublish_Item{Topic: topic, User: user, ClientId: id, Payload: fmt.Append(nil, i)})
	}
	data, err := proto.Marshal(in)
	if err != nil {
		c.t.Fatal(err)
	}
	c.handle(data, nil)
}

func (c *taker) answer(n int) []*meshv1.ClientPublishReply_Result {
	c.t.Helper()
	out := &meshv1.ClientPublishReply{}
	if err := proto.Unmarshal((<-c.replies).data, out); err != nil || len(out.GetResults()) != n {
		c.t.Fatalf("%d results: %v", len(out.GetResults()), err)
	}
	return out.GetResults()
}

// oks counts; what is refused must be so for the producer's limits.
func (c *taker) oks(all []*meshv1.ClientPublishReply_Result) (ok int) {
	c.t.Helper()
	for _, r := range all {
		switch {
		case r.GetCode() == wirev1.Code_CODE_OK:
			ok++
		case r.GetCode() != wirev1.Code_CODE_RATE_LIMITED || r.GetRetryAfterMs() == 0:
			c.t.Fatalf("%v", r)
		}
	}
	return ok
}

// A client that keeps to its window is held to its producer's limits by waiting, not by refusals,
// however many routers share them. Two and three of them leave it a burst below the window.
func TestAWindowIsLetInWhole(t *testing.T) {
	const window = 64
	for _, routers := range []int{1, 2, 3, 10} {
		taking(t, admission.Limits{Rate: 1000, InFlight: 50}, routers, func(c *taker) {
			began := time.Now()
			const rounds = 10
			for round := range rounds {
				all, took := c.ask("", "a", "open/1", window)
				if n := c.oks(all); n != window {
					t.Fatalf("%d routers, round %d: %d of %d", routers, round, n, window)
				}
				if took > patience {
					t.Errorf("%d routers, round %d took %v", routers, round, took)
				}
			}
			share := 1000 / routers
			least := time.Duration(rounds*window-max(share/10, 10)-1) * time.Second / time.Duration(share)
			if took := time.Since(began); took < least {
				t.Errorf("%d routers: %d messages in %v, at %d a second not before %v", routers, rounds*window, took, share, least)
			}
		})
	}
}

// Where waiting would take too long, the rest is refused at once; and it does not count as patience
// what others use up.
func TestPatienceEnds(t *testing.T) {
	taking(t, admission.Limits{Rate: 10, InFlight: 50}, 1, func(c *taker) {
		all, took := c.ask("", "a", "open/1", 64)
		if n := c.oks(all); n < 19 || n > 21 || took < patience/2 || took > patience+mostPenaltyHere {
			t.Errorf("%d of 64 in %v, at 10 a second and a burst of 10", n, took)
		}
		for i, r := range all[1:] {
			if r.GetCode() == wirev1.Code_CODE_OK && all[i].GetCode() != wirev1.Code_CODE_OK {
				t.Errorf("%d was let in after one before it was refused, although nothing had changed", i+1)
			}
		}
	})
	taking(t, admission.Limits{Rate: 10, InFlight: 50}, 1, func(c *taker) {
		c.patient.Store(mostPatient) // others'
		all, took := c.ask("", "a", "open/1", 64)
		if n := c.oks(all); n != 10 || took != 0 {
			t.Errorf("%d of 64 in %v where nobody may wait", n, took)
		}
		c.patient.Store(0)
	})
}

// mostPenaltyHere is how late an answer may be beside.
const mostPenaltyHere = 250 * time.Millisecond

// A producer's messages unanswered: a turn pauses until one of its own is answered, or for a moment
// where they are of another connection.
func TestATurnPausesForItsOwn(t *testing.T) {
	taking(t, admission.Limits{InFlight: 4}, 1, func(c *taker) {
		pol := &policy.Policy{}
		others := make([]admission.Slot, 4)
		for i := range others {
			slot, err := c.publisher.cfg.Admission.Admit(time.Now(), admission.Ask{Producer: "client:a", Policy: pol, Messages: 1})
			if err != nil {
				t.Fatal(err)
			}
			others[i] = slot
		}
		began := time.Now()
		c.send("", "a", "open/1", 8)
		<-time.After(100 * time.Millisecond)
		for _, slot := range others {
			slot.Release()
		}
		if n := c.oks(c.answer(8)); n != 8 || time.Since(began) > 100*time.Millisecond+2*crowdedHere {
			t.Errorf("%d in %v", n, time.Since(began))
		}
	})
}

// crowdedHere is how often a crowded turn looks again.
const crowdedHere = 20 * time.Millisecond

// A refusal refuses one message alone.
func TestARefusalRefusesOneMessage(t *testing.T) {
	taking(t, admission.Limits{Rate: 1000, InFlight: 50}, 1, func(c *taker) {
		in := &meshv1.ClientPublish{Items: []*meshv1.ClientPublish_Item{{Topic: "open/1"}, {Topic: "shut/1"}, {Topic: "open/1"}, {Topic: "open/+"}, {Topic: "open/1"}}}
		data, err := proto.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		c.handle(data, nil)
		got := ""
		for _, r := range c.answer(5) {
			got += " " + code.Name(r.GetCode())
		}
		if got != " OK FORBIDDEN OK BAD_TOPIC OK" {
			t.Errorf("answered%s", got)
		}
	})
}

// A client that goes on sending what is refused is answered late, as a producer's calls are: it
// can't have more refused than twice what it may send. Another client isn't.
func TestAClientThatIgnoresRefusalsIsAnsweredLate(t *testing.T) {
	taking(t, admission.Limits{Rate: 10, InFlight: 10}, 1, func(c *taker) {
		c.patient.Store(mostPatient) // so that all of it is refusals
		began, refused, last := time.Now(), 0, time.Duration(0)
		const during = 20 * time.Second
		for time.Since(began) < during {
			var all []*meshv1.ClientPublishReply_Result
			all, last = c.ask("rude", "x", "open/1", 64)
			refused += len(all) - c.oks(all)
			<-time.After(time.Millisecond) // over NATS
		}
		// Each further request is held for a quarter of a second; without a penalty it would be 64
		// a millisecond.
		if most := 64 * int(during/leastHold) * 2; refused > most || last < leastHold {
			t.Errorf("%d refusals in %v, at most %d; the last answer took %v", refused, during, most, last)
		}
		if all, took := c.ask("kind", "x", "open/1", 5); c.oks(all) != 5 || took != 0 {
			t.Errorf("another client's took %v", took)
		}
		c.patient.Store(0)
	})
}

// leastHold of a client that is far beyond.
const leastHold = 100 * time.Millisecond

// A router that stops answers what waits at once or soon, and says that another router takes it.
func TestPatienceEndsWhereTheRouterStops(t *testing.T) {
	taking(t, admission.Limits{Rate: 10, InFlight: 10}, 1, func(c *taker) {
		c.send("", "a", "open/1", 20)
		c.Drain()
		for i, r := range c.answer(20) {
			want := wirev1.Code_CODE_OK
			if i >= 10 {
				want = wirev1.Code_CODE_DRAINING
			}
			if r.GetCode() != want {
				t.Errorf("%d: %v", i, r)
			}
		}
	})
}

// A client's message says whose it is, as its sessions do; an empty From is a backend's.
func TestFromOfAClientsMessage(t *testing.T) {
	for want, it := range map[string]*meshv1.ClientPublish_Item{
		"ann": {User: "ann", ClientId: "c"}, "client:c": {ClientId: "c"},
	} {
		taking(t, admission.Limits{}, 1, func(c *taker) {
			r := &routes{}
			c.publisher.cfg.Routes = r
			it.Topic = "open/1"
			data, err := proto.Marshal(&meshv1.ClientPublish{Items: []*meshv1.ClientPublish_Item{it}})
			if err != nil {
				t.Fatal(err)
			}
			c.handle(data, nil)
			c.answer(1)
			if from := r.last(t).GetFrom(); from != want {
				t.Errorf("from %q, want %q", from, want)
			}
		})
	}
}
