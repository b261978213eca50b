package delivery

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/kept"
)

// keeping bounds what connections of a world that has none keep, in windows and in all, in bytes.
func (w *world) keeping(windows, all int64) *world {
	cfg := w.h.cfg
	cfg.Kept = kept.Config{Windows: windows, Connection: all}
	w.h = newHub(w.t, cfg)
	w.pass(0)
	return w
}

// releasedOne is a world with a client that has not ACKed one message, of which its window keeps
// the seq alone.
func releasedOne(t *testing.T) (*world, *client) {
	t.Helper()
	w := newWorld(t, Limits{}).keeping(1, 0)
	c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Ack: true})
	w.mesh.Send("room/1", "a")
	c.take()
	c.got = nil
	return w, c
}

// keep draws how much windows may keep: anything, no message, or some.
func (w *world) keep(t *rapid.T) {
	w.keeping(rapid.SampledFrom([]int64{0, 1, 500}).Draw(t, "kept"), 0)
}

// A window keeps seqs alone of what is beyond its part: the messages are read again, come again in
// order with their attempts, and an ACK settles them like others.
func TestWindowsKeepSeqsBeyondTheirPart(t *testing.T) {
	const n, size, most = 60, 4 << 10, 128 << 10
	w := newWorld(t, Limits{}).keeping(most/2, 0)
	c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000, ReceiveWindow: n})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Ack: true})
	w.settle()
	for i := range n {
		w.mesh.Send("room/1", strings.Repeat(fmt.Sprint(i%10), size))
		c.take()
	}
	s := w.h.Stats()
	if s.Released == 0 || s.Unacked != n || s.KeptBytes > most/2+n*100+size {
		t.Fatalf("%d released of %d, %d bytes are kept", s.Released, s.Unacked, s.KeptBytes)
	}
	reads := w.mesh.Reads
	for attempt := range 2 {
		c.got = nil
		for passed := 0; len(c.got) < n; passed++ {
			if passed > 100 {
				t.Fatalf("attempt %d: %d of %d came again", attempt+1, len(c.got), n)
			}
			w.pass(100 * time.Millisecond)
			c.take()
		}
		var seqs []string
		for _, f := range c.got {
			seqs = append(seqs, f.text())
		}
		for i := range n {
			if want := fmt.Sprintf("room/1/%d attempt=%d", i+1, attempt+1); !slices.Contains(seqs, want) {
				t.Fatalf("%s did not come: %q", want, seqs)
			}
		}
	}
	if n := w.mesh.Reads - reads; n == 0 || n > 20 {
		t.Fatalf("the log was read %d times", n)
	}
	c.ack("room/1", n, true)
	w.settle()
	if s := w.h.Stats(); s.Unacked != 0 || s.KeptBytes != 0 {
		t.Fatalf("%d un-ACKed and %d bytes are left", s.Unacked, s.KeptBytes)
	}
}

// A released message whose attempts are used up is a dead letter with its bytes, as any other.
func TestReleasedMessagesBecomeDeadLetters(t *testing.T) {
	w := newWorld(t, Limits{}).keeping(1, 0)
	c := w.session()
	c.subscribeSession("room/1")
	w.mesh.Send("room/1", "poison")
	c.take()
	for attempts := 0; attempts < 20 && len(w.mesh.Letters) == 0; attempts++ {
		w.pass(15 * time.Second)
		w.h.Gone(c.slot)
		w.settle()
		c = w.session()
		c.subscribeSession("room/1")
	}
	if len(w.mesh.Letters) != 1 || w.mesh.Letters[0].GetReason() != wirev1.Code_CODE_ATTEMPTS_EXHAUSTED || w.mesh.Letters[0].GetAttempts() != 16 || len(w.mesh.Letters[0].GetBody()) == 0 {
		t.Fatalf("dead letters %v", w.mesh.Letters)
	}
	if w.h.Stats().Released == 0 {
		t.Fatal("nothing was released")
	}
}

// A released message that retention takes before it is sent again does not disappear in silence:
// the client is told, it is counted, and the session's position moves on behind it.
func TestReleasedMessagesThatRetentionTakesAreNamed(t *testing.T) {
	w := newWorld(t, Limits{}).keeping(1, 0)
	c := w.session()
	c.subscribeSession("room/1")
	w.mesh.Send("room/1", "a", "b", "c")
	c.take()
	w.mesh.Retain("room/1", 3)
	c.got = nil
	w.pass(5 * time.Second)
	c.take()
	named, again := 0, 0
	for _, f := range c.got {
		switch text := f.text(); {
		case strings.Contains(text, "RETENTION"):
			named++
		case strings.HasPrefix(text, "room/1/3 "):
			again++
		default:
			t.Fatalf("got %s", text)
		}
	}
	if n := w.h.Stats().Drops[wirev1.Code_CODE_RETENTION]; named != 2 || again == 0 || n != 2 {
		t.Fatalf("%d are named, %d are counted, the third came again %d times", named, n, again)
	}
	c.ack("room/1", 3, true)
	w.pass(2 * time.Second)
	if cur := w.mesh.Session("client:ann", "inbox").Cursors["room/1"]; cur.GetFloor() != 3 {
		t.Fatalf("the session stands at %v", cur)
	}
}

// While the log can't be read a released message waits, and comes once it can.
func TestReleasedMessagesWaitForTheLog(t *testing.T) {
	w, c := releasedOne(t)
	w.mesh.CloseStore(true)
	w.pass(10 * time.Second)
	c.expect()
	w.mesh.CloseStore(false)
	w.pass(2 * time.Second)
	c.expect("room/1/1 attempt=1")
}

// What a Subscribe has the edge keep while it waits, and the topics that it begins with, are
// charged to its connection until it is gone: beyond the bound it is refused, and others are
// served.
func TestPositionsAreCharged(t *testing.T) {
	w := newWorld(t, Limits{}).keeping(0, 200<<10)
	var positions []*wirev1.Position
	for i := range 400 {
		positions = append(positions, &wirev1.Position{Topic: fmt.Sprint("room/", i), Seq: 0, Epoch: 1})
	}
	w.mesh.Hold()
	c, other := w.connect(&wirev1.Hello{HeartbeatMs: 600_000}), w.connect(&wirev1.Hello{HeartbeatMs: 600_000})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/+", Positions: positions})
	c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "room/#", Positions: positions})
	c.expect("Error OVERLOADED ref=2")
	other.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/+", Positions: positions})
	other.expect()
	if n := w.h.Stats().KeptBytes; n < 2*400*100 || n > 400<<10 {
		t.Fatalf("%d bytes are kept", n)
	}
	w.mesh.Release()
	c.take()
	c.got = nil
	c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 1})
	c.take()
	c.got = nil
	for i := range 500 {
		w.mesh.Append(fmt.Sprint("many/", i), "x")
	}
	c.subscribe(&wirev1.Subscribe{Id: 3, Filter: "many/+", Start: wirev1.Start_START_EARLIEST})
	c.expect("Error OVERLOADED ref=3")
	w.h.Gone(c.slot)
	w.h.Gone(other.slot)
	w.settle()
	if s := w.h.Stats(); s.KeptBytes != 0 || s.Refused[wirev1.Code_CODE_OVERLOADED] != 2 {
		t.Fatalf("%d bytes are left, %d were refused", s.KeptBytes, s.Refused[wirev1.Code_CODE_OVERLOADED])
	}
}
