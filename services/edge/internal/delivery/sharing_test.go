package delivery

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

func TestSubscriptionsOfASessionShareAnEphemeralMessage(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.session()
	c.expect("Welcome")
	for i, filter := range []string{"talk/#", "talk/+"} {
		c.subscribe(&wirev1.Subscribe{Id: uint32(i) + 1, Filter: filter, Ack: true, Start: wirev1.Start_START_SESSION})
		c.expect(fmt.Sprintf("Subscribed %d head=0", i+1))
	}
	w.mesh.Live(upstreamtest.Encode("talk/1", 0, 0, "hi"))
	c.expect("talk/1=hi subs=[1 2]")
	other := w.connect(&wirev1.Hello{})
	other.subscribe(&wirev1.Subscribe{Id: 1, Filter: "talk/1"})
	other.expect("Subscribed 1 head=0")
	w.mesh.Live(upstreamtest.Encode("talk/1", 0, 0, "ho"))
	c.expect("talk/1=ho subs=[1 2]")
	other.expect("talk/1=ho")
	c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 1})
	c.expect("Unsubscribed 1")
	w.mesh.Live(upstreamtest.Encode("talk/2", 0, 0, "alone"))
	c.expect("talk/2=alone subs=[2]")
}

// What is left out of several messages of a session's subscriptions is what each of them leaves
// out: the newest stays where all conflate.
func TestSubscriptionsOfASessionConflateTogether(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.session()
	c.expect("Welcome")
	for i, filter := range []string{"talk/#", "talk/+"} {
		c.subscribe(&wirev1.Subscribe{Id: uint32(i) + 1, Filter: filter, Start: wirev1.Start_START_SESSION, Overflow: wirev1.Overflow_OVERFLOW_CONFLATE})
		c.expect(fmt.Sprintf("Subscribed %d head=0", i+1))
	}
	c.slow = true
	for _, text := range []string{"a", "b", "c"} {
		w.mesh.Live(upstreamtest.Encode("talk/1", 0, 0, text))
		w.settle()
	}
	c.slow = false
	c.expect("talk/1=c subs=[1 2]")
}

// wish is a subscription of the model.
type wish struct {
	id     uint32
	filter string
	kind   state.Kind
}

// wishes of one connection.
type wishes []wish

// of are the deliveries that an ephemeral message comes in, as the protocol has it: one without
// subs for all plain subscriptions together, one for all of the session's together, and one for
// each of the others.
func (all wishes) of(name string) (deliveries []string) {
	plain, session := false, []uint32{}
	for _, x := range all {
		switch {
		case !topic.Match(x.filter, name):
		case x.kind == state.KindPlain:
			plain = true
		case x.kind == state.KindSession:
			session = append(session, x.id)
		default:
			deliveries = append(deliveries, fmt.Sprint([]uint32{x.id}))
		}
	}
	if plain {
		deliveries = append(deliveries, "[]")
	}
	if len(session) > 0 {
		slices.Sort(session)
		deliveries = append(deliveries, fmt.Sprint(session))
	}
	slices.Sort(deliveries)
	return deliveries
}

// However the filters of a connection overlap, and whoever else subscribes to the very topic, an
// ephemeral message comes once in each delivery that it is due in.
func TestEphemeralMessagesComeOnceInEachDelivery(t *testing.T) {
	filters := []string{"talk/#", "talk/+", "+/1", "#", "talk/1", "talk/2"}
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, Limits{})
		c, other := w.session(), w.connect(&wirev1.Hello{HeartbeatMs: 600_000})
		c.expect("Welcome")
		var all wishes
		theirs := uint32(0)
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "op") {
			case 0, 1, 2:
				x := wish{uint32(len(all)) + 1, rapid.SampledFrom(filters).Draw(t, "filter"), rapid.SampledFrom([]state.Kind{state.KindPlain, state.KindSession, state.KindOwn}).Draw(t, "kind")}
				m := &wirev1.Subscribe{Id: x.id, Filter: x.filter, Ack: rapid.Bool().Draw(t, "ack")}
				switch x.kind {
				case state.KindSession:
					m.Start = wirev1.Start_START_SESSION
				case state.KindOwn:
					m.Start = wirev1.Start_START_EARLIEST
				}
				c.subscribe(m)
				all = append(all, x)
			case 3:
				theirs++
				other.subscribe(&wirev1.Subscribe{Id: theirs, Filter: rapid.SampledFrom(filters).Draw(t, "their filter")})
			default:
				name := rapid.SampledFrom([]string{"talk/1", "talk/2", "talk/1/x", "other/1"}).Draw(t, "topic")
				w.settle()
				c.take()
				c.got = nil
				w.mesh.Live(upstreamtest.Encode(name, 0, 0, "x"))
				w.settle()
				c.take()
				var got []string
				for _, fr := range c.got {
					ids := slices.Clone(fr.m.(*wirev1.Message).GetSubs())
					slices.Sort(ids)
					got = append(got, fmt.Sprint(ids))
				}
				slices.Sort(got)
				if want := all.of(name); !slices.Equal(got, want) {
					t.Fatalf("%s came as %v, want %v (%+v)", name, got, want, all)
				}
			}
		}
	})
}

// Where their content filters differ the newest message of one subscription takes nobody else's
// place: another one may want the one before, and not this one.
func TestSubscriptionsOfASessionConflateApartWhereTheirFiltersDiffer(t *testing.T) {
	for _, name := range []string{"talk/1", "room/1"} {
		w := newWorld(t, Limits{})
		c := w.session()
		c.expect("Welcome")
		topic := name[:5]
		for i, where := range []string{"payload > 1", "payload > 5"} {
			c.subscribe(&wirev1.Subscribe{
				Id: uint32(i) + 1, Filter: topic + []string{"#", "+"}[i], Where: where, Start: wirev1.Start_START_SESSION, Overflow: wirev1.Overflow_OVERFLOW_CONFLATE,
			})
			c.expect(fmt.Sprintf("Subscribed %d head=0", i+1))
		}
		c.slow = true
		for _, payload := range []string{"7", "2", "9", "3"} {
			if name == "room/1" {
				w.mesh.Send(name, payload)
			} else {
				m := upstreamtest.Encode(name, 0, 0, payload)
				w.mesh.Wheres.Judge([]*exchange.Message{m})
				w.mesh.Live(m)
			}
			w.settle()
		}
		c.slow = false
		if name == "room/1" {
			c.expect("room/1/1 subs=[1 2]", "room/1/2 subs=[1]", "room/1/3 subs=[1 2]", "room/1/4 subs=[1]")
		} else {
			c.expect("talk/1=7 subs=[1 2]", "talk/1=2 subs=[1]", "talk/1=9 subs=[1 2]", "talk/1=3 subs=[1]")
		}
	}
}
