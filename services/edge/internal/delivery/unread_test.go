package delivery

import (
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/kept"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// A window that is full of messages whose log is not there any more, or can't be read, lets go of
// them: what comes in another topic reaches the client, or its connection ends. That is so whether
// it keeps the messages or seqs alone, with a session and without one.
func TestAWindowLetsGoOfWhatCantBeRead(t *testing.T) {
	for what, end := range map[string]func(w *world){
		"a new epoch": func(w *world) { w.mesh.NewEpoch("room/1", upstreamtest.BaseEpoch+1) },
		"no log":      func(w *world) { w.mesh.Away("room/1", true) },
	} {
		for _, session := range []bool{false, true} {
			for _, keep := range []int64{1 << 20, 1} {
				w := newWorld(t, Limits{}).keeping(keep, 0)
				hello := &wirev1.Hello{HeartbeatMs: 600_000, ReceiveWindow: 3, ClientId: "ann"}
				start := wirev1.Start_START_LIVE
				if session {
					hello.Session, start = "inbox", wirev1.Start_START_SESSION
				}
				c := w.connect(hello)
				c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Ack: true, Start: start})
				c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "room/2", Ack: true, Start: start})
				w.settle()
				w.mesh.Send("room/1", "a", "b", "c")
				c.take()
				end(w)
				c.got = nil
				w.mesh.Send("room/2", "x")
				went := func() bool {
					for _, f := range c.got {
						if s := f.text(); strings.HasPrefix(s, "room/2/1") || strings.HasPrefix(s, "Error ACK_TIMEOUT") {
							return true
						}
					}
					return false
				}
				for i := 0; !went(); i++ {
					if i == 60 {
						t.Fatalf("%s, session %v, %d kept: a minute later %d un-ACKed, %d ACK timeouts, %d reads", what, session, keep, w.h.Stats().Unacked, w.h.Stats().AckTimeouts, w.mesh.Reads)
					}
					w.pass(time.Second)
					c.take()
				}
				if len(w.mesh.Letters) != 0 {
					t.Fatalf("%s: dead letters %v", what, w.mesh.Letters)
				}
			}
		}
	}
}

// A session's message whose log could not be read for so long that the window let go of it is not
// settled: the session's next connection gets it.
func TestWhatCouldNotBeReadIsTheSessionsStill(t *testing.T) {
	w := newWorld(t, Limits{}).keeping(1, 0)
	c := w.session()
	c.subscribeSession("room/1")
	w.mesh.Send("room/1", "a")
	c.take()
	w.mesh.Away("room/1", true)
	for i := 0; w.h.Stats().Unacked > 0; i++ {
		if i == 60 {
			t.Fatal("a minute later the window has not let go")
		}
		w.pass(time.Second)
		c.take()
	}
	w.mesh.Away("room/1", false)
	w.h.Gone(c.slot)
	w.settle()
	c = w.session()
	c.subscribeSession("room/1")
	w.settle()
	for _, text := range c.texts() {
		if strings.HasPrefix(text, "room/1/1 ") {
			return
		}
	}
	t.Fatalf("it did not come: the session stands at %v", w.mesh.Session("client:ann", "inbox").Cursors["room/1"])
}

// What is read again for a message that then waits (here for --dead-letter-rate) is let go of again
// beyond the bound, and each still becomes a dead letter.
func TestWhatIsReadAgainAndWaitsIsBounded(t *testing.T) {
	const n, size, bound = 200, 4 << 10, 64 << 10
	w := nacking(t, 5, 1).bounded(kept.Config{Windows: bound})
	c := w.session()
	c.subscribeSession("room/1")
	w.pass(0)
	for range n {
		w.mesh.Send("room/1", strings.Repeat("x", size))
		c.take()
	}
	w.pass(time.Second)
	c.nackAll(n)
	for i := 0; w.lettersOnce() < n; i++ {
		if i == 120 {
			t.Fatalf("two minutes later there are %d dead letters", w.lettersOnce())
		}
		w.pass(time.Second)
		if most := w.h.Stats().KeptBytes; most > bound+n*100+size {
			t.Fatalf("%d bytes are kept, the bound of windows is %d", most, bound)
		}
	}
	if k := w.h.Stats().KeptBytes - int64(w.h.conns.Get(c.slot).Session.Kept); k != 0 {
		t.Fatalf("%d bytes are left", k)
	}
}

// A Nack's delay holds, also where the message was due and is being read from the log.
func TestANacksDelayHoldsWhileItsMessageIsRead(t *testing.T) {
	w, c := releasedOne(t)
	w.mesh.Hold()
	reads := w.mesh.Reads
	for i := 0; i < 60 && w.mesh.Reads == reads; i++ {
		w.pass(time.Second)
	}
	if w.mesh.Reads == reads {
		t.Fatal("it is not read")
	}
	c.send(wirev1.FrameType_FRAME_TYPE_NACK, &wirev1.Nack{Topic: "room/1", Seq: 1, DelayMs: 60_000})
	w.settle()
	w.mesh.Release()
	w.pass(55 * time.Second)
	c.expect()
	w.pass(7 * time.Second)
	c.expect("room/1/1 attempt=1")
}

// A TLS record without a frame is no frame.
func TestRecordsAreNoFrames(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000})
	before := w.h.Frames()
	w.h.RecordBegun(c.slot)
	w.h.RecordWhole(c.slot)
	if n := w.h.Frames() - before; n != 0 || w.h.conns.Get(c.slot).Begun != 0 {
		t.Fatalf("%d frames are counted", n)
	}
}
