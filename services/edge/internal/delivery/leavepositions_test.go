package delivery

import (
	"fmt"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/kept"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// A session's subscription that is refused for want of memory while it begins leaves the session's
// positions where they were: nothing that was ACKed comes again.
func TestARefusedSubscriptionLeavesPositions(t *testing.T) {
	const topics = 100
	for steps := 1; steps < 14; steps++ {
		w := newWorld(t, Limits{}).bounded(kept.Config{Connection: 256 << 10})
		w.manyTopics(topics)
		c := w.session()
		c.subscribeSession("many/+")
		w.settle()
		w.pass(time.Second)
		w.h.Gone(c.slot)
		w.settle()
		before := w.mesh.Session("client:ann", "inbox")
		if before.Cursors["many/7"].GetFloor() == 0 {
			t.Fatal("nothing to lose")
		}
		c = w.session()
		c.take()
		c.asks(&wirev1.Subscribe{Id: 1, Filter: "many/+", Ack: true, Start: wirev1.Start_START_SESSION})
		for _, e := range w.mail {
			w.h.Event(e)
		}
		w.mail = nil
		for range steps {
			w.h.Work(1)
		}
		s := w.h.conns.Get(c.slot).Subs.At(0)
		if s.Pending == nil || s.Active {
			break // it is active by now
		}
		tracks := w.h.conns.Get(c.slot).Tracks.Len()
		for n := 0; !s.Dead && n < 1<<20; n++ {
			w.h.starter.hear(s, w.h.topics.Get("many/7"), true)
		}
		w.settle()
		c.take()
		c.got = nil
		c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "many/+", Ack: true, Start: wirev1.Start_START_SESSION})
		w.settle()
		w.pass(time.Second)
		again := 0
		for _, f := range c.got {
			if _, is := f.m.(*wirev1.Subscribed); !is {
				again++
			}
		}
		after := w.mesh.Session("client:ann", "inbox")
		lost := 0
		for name, cur := range before.Cursors {
			if after.Cursors[name].GetFloor() < cur.GetFloor() {
				lost++
			}
		}
		if again > 0 || lost > 0 {
			t.Errorf("steps %d, %d tracks: %d messages came again, %d positions went back in the store", steps, tracks, again, lost)
		}
	}
}

// The store is away for a while as a session resumes one filter with a new topic in it: the
// Subscribe is refused (UNAVAILABLE). When the client asks again, what it had ACKed does not come
// again. The write itself is tried on (upstream/sessions, again).
func TestAnUnstoredSubscriptionLeavesPositions(t *testing.T) {
	w := newWorld(t, Limits{})
	w.mesh.Append("room/1", "old", "old")
	c := w.session()
	c.subscribeSession("room/+")
	w.mesh.Send("room/1", "a", "b", "c")
	c.take()
	c.ack("room/1", 5, true)
	w.pass(time.Second)
	w.h.Gone(c.slot)
	w.settle()
	w.mesh.Append("room/2", "x") // its first position is to be stored
	before := w.mesh.Session("client:ann", "inbox").Cursors["room/1"].GetFloor()

	c = w.session()
	c.take()
	w.mesh.HoldSaved()
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/+", Ack: true, Start: wirev1.Start_START_SESSION})
	ref := w.h.conns.Get(c.slot).Subs.At(0).Ref
	w.h.Event(exchange.Saved{Conn: w.h.Handle(c.slot), Ref: ref, Err: code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, "the store is away")})
	w.settle()
	w.mesh.Release()
	w.settle()
	c.take()
	c.got = nil
	c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "room/+", Ack: true, Start: wirev1.Start_START_SESSION})
	w.pass(time.Second)
	if after := w.mesh.Session("client:ann", "inbox").Cursors["room/1"].GetFloor(); after < before {
		t.Errorf("the session stood at %d, and stands at %d", before, after)
	}
}

// A session has many filters, and takes one back while the client subscribes to another one: the
// position that a third filter of it wants stays.
func TestAPositionStaysWhileFiltersCome(t *testing.T) {
	const filters = 300
	bad := 0
	for at := 20; at < 60; at++ { // where the filter that wants the position is among all
		for steps := range 8 {
			w := newWorld(t, Limits{})
			w.mesh.Append("room/7", "a", "b", "c")
			c := w.session()
			w.h.Gone(c.slot)
			w.settle()
			write := &meshv1.SessionWrite{User: "client:ann", Name: "inbox"}
			for i := range filters {
				f := fmt.Sprint("f/", i)
				if i == at {
					f = "room/7"
				}
				write.AddFilters = append(write.AddFilters, f)
			}
			write.AddFilters = append(write.AddFilters, "room/+")
			write.Cursors = []*meshv1.SessionCursor{{Topic: "room/7", Epoch: upstreamtest.BaseEpoch, Floor: 3}}
			w.mesh.Save(exchange.Conn{}, 0, write, true)
			c = w.session()
			c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/+", Ack: true, Start: wirev1.Start_START_SESSION})
			c.take()
			c.kept = append(c.kept, frameOf(t, wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 1})...)
			c.feed()
			for range steps {
				w.h.Work(1)
			}
			c.asks(&wirev1.Subscribe{Id: 2, Filter: "new/1", Ack: true, Start: wirev1.Start_START_SESSION})
			w.settle()
			c.take()
			if w.mesh.Session("client:ann", "inbox").Cursors["room/7"].GetFloor() == 3 {
				continue
			}
			c.got = nil
			c.subscribe(&wirev1.Subscribe{Id: 3, Filter: "room/7", Ack: true, Start: wirev1.Start_START_SESSION})
			w.settle()
			c.take()
			if bad++; bad < 3 {
				t.Errorf("filter %d of %d, %d steps: its position is gone, and what was ACKed comes again: %v", at, filters, steps, c.texts())
			}
		}
	}
}

// As TestARefusedSubscriptionLeavesPositions, as it comes about: messages come live while the
// session's subscription begins and its connection is near its bound.
func TestLiveMessagesCostASessionNoPositions(t *testing.T) {
	const topics = 126
	refused := 0
	for work := 1; work < 400; work += 5 {
		w := newWorld(t, Limits{}).bounded(kept.Config{Connection: 1024 + 128 + 512*topics + 512*100 + 500})
		w.manyTopics(topics)
		for i := range 100 {
			w.mesh.Append(fmt.Sprint("extra/", i), "x")
		}
		c := w.session()
		c.subscribeSession("many/+")
		w.settle()
		w.pass(time.Second)
		w.h.Gone(c.slot)
		w.settle()
		before := w.mesh.Session("client:ann", "inbox").Cursors
		c = w.session()
		c.take()
		c.subscribe(&wirev1.Subscribe{Id: 9, Filter: "extra/+"})
		c.asks(&wirev1.Subscribe{Id: 1, Filter: "many/+", Ack: true, Start: wirev1.Start_START_SESSION})
		for i := range 60 {
			w.mesh.Send(fmt.Sprint("many/", 1000+i), "y")
		}
		mail := w.mail
		w.mail = nil
		for _, e := range mail {
			w.h.Event(e)
		}
		for range 200 {
			w.h.Work(40 + work)
		}
		w.settle()
		c.take()
		if f := c.got[len(c.got)-1].text(); f[:5] != "Error" {
			continue
		}
		refused++
		c.got = nil
		c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 9}) // makes room
		c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "many/+", Ack: true, Start: wirev1.Start_START_SESSION})
		w.settle()
		w.pass(time.Second)
		c.take()
		after := w.mesh.Session("client:ann", "inbox").Cursors
		lost := 0
		for name, cur := range before {
			if after[name].GetFloor() < cur.GetFloor() {
				lost++
			}
		}
		if lost > 0 {
			t.Errorf("work %d: %d of %d positions went back to the beginning of their logs", work, lost, topics)
			return
		}
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
}
