package delivery

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// answerSome ends windows and answers rankings in any order, some with an error.
func (w *world) answerSome(t *rapid.T, asked []*exchange.Ranking) (left []*exchange.Ranking) {
	if rapid.Bool().Draw(t, "windows") {
		w.mesh.EndWindows()
		w.settle()
	}
	for _, r := range append(asked, w.mesh.Rankings()...) {
		switch rapid.IntRange(0, 3).Draw(t, "answer") {
		case 0:
			left = append(left, r)
		case 1:
			w.mesh.Fail(r, code.New(wirev1.Code_CODE_OVERLOADED, "full"))
		default:
			w.mesh.Answer(r, byPayload)
		}
	}
	w.settle()
	return left
}

// heard is what one connection was told of each seq.
type heard struct {
	*client
	name    string
	came    map[uint64]int // first deliveries
	named   map[uint64]int // gaps
	unacked []uint64
	oldest  map[string]uint64 // of topics: lower ones are not retained
	late    bool              // it has not ACKed for so long that it was closed
}

func (f *heard) check() {
	f.take()
	for _, fr := range f.got {
		switch m := fr.m.(type) {
		case *wirev1.Message:
			if m.GetAttempt() == 0 {
				f.came[m.GetSeq()]++
			}
			f.unacked = append(f.unacked, m.GetSeq())
		case *wirev1.Progress:
			lost := m.GetCode() == wirev1.Code_CODE_RETENTION && m.GetTo() < f.oldest[f.name]
			if m.GetCode() != wirev1.Code_CODE_RANKED_OUT && m.GetCode() != wirev1.Code_CODE_FILTERED && !lost {
				f.w.t.Fatalf("%s", fr.text())
			}
			for seq := m.GetFrom(); seq <= m.GetTo(); seq++ {
				f.named[seq]++
			}
		case *wirev1.Error:
			f.late = f.late || m.GetCode() == wirev1.Code_CODE_ACK_TIMEOUT
		}
	}
	f.got = nil
}

func (f *heard) ackOne(which int) {
	if len(f.unacked) == 0 {
		return
	}
	i := which % len(f.unacked)
	f.ack(f.name, f.unacked[i], false)
	f.unacked = append(f.unacked[:i], f.unacked[i+1:]...)
}

// Whatever is lost on the way to the loop, however rankings end and clients read: each message
// comes once, or is named once as one that does not.
func TestRankedMessagesComeOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		memory := rapid.SampledFrom([]int{0, 4000, 20_000}).Draw(t, "memory")
		w := rankedWorld(t, Limits{QueueMessages: rapid.IntRange(1, 99).Draw(t, "queue"), QueueMemory: memory}, rapid.Uint32Range(1, 6).Draw(t, "most"))
		w.keep(t)
		var clients []*heard
		oldest := map[string]uint64{}
		for i := range rapid.IntRange(1, 3).Draw(t, "connections") {
			name := rapid.SampledFrom([]string{"feed/1", "top/1"}).Draw(t, "topic")
			c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000, ReceiveWindow: rapid.Uint32Range(1, 8).Draw(t, "window")})
			c.taste(float64(1 - 2*(i%2)))
			c.subscribe(&wirev1.Subscribe{Id: 1, Filter: name, RankTopK: rapid.Uint32Range(1, 4).Draw(t, "k"), Ack: true, Start: wirev1.Start_START_EARLIEST})
			clients = append(clients, &heard{client: c, name: name, came: map[uint64]int{}, named: map[uint64]int{}, oldest: oldest})
		}
		sent, left := map[string]uint64{}, []*exchange.Ranking(nil)
		publish := func(name string, live bool) {
			var texts []string
			for range rapid.IntRange(1, 5).Draw(t, "run") {
				texts = append(texts, fmt.Sprint(rapid.IntRange(-1, 9).Draw(t, "worth")))
			}
			msgs := w.mesh.Append(name, texts...)
			sent[name] += uint64(len(msgs))
			if live {
				w.mesh.Live(msgs...)
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			f := clients[rapid.IntRange(0, len(clients)-1).Draw(t, "who")]
			switch rapid.IntRange(0, 10).Draw(t, "op") {
			case 10:
				oldest[f.name] = rapid.Uint64Range(max(oldest[f.name], 1), sent[f.name]+1).Draw(t, "oldest")
				w.mesh.Retain(f.name, oldest[f.name])
			case 8: // it pays for others
				if c := w.h.conns.Get(f.slot); !f.ended && !c.Out.IsEmpty() {
					w.h.trimDurable(c, 0)
					c.Out.Compact()
				}
			case 9:
				if c := w.h.conns.Get(f.slot); !f.ended && c.Tracks.Len() > 0 {
					w.h.replay.releaseRange(c.Tracks.At(0))
				}
			case 0, 1:
				publish(f.name, true)
			case 2:
				publish(f.name, false)
			case 3:
				f.slow = !f.slow
			case 4:
				f.ackOne(rapid.IntRange(0, 100).Draw(t, "which"))
			case 5, 6:
				left = w.answerSome(t, left)
			case 7:
				w.pass(time.Duration(rapid.IntRange(0, 900).Draw(t, "ms")) * time.Millisecond)
			}
			f.check()
		}
		for _, r := range left {
			w.mesh.Answer(r, byPayload)
		}
		for name := range sent {
			w.mesh.Send(name, "1")
			sent[name]++
		}
		complete := func(f *heard) bool {
			for seq := uint64(1); seq <= sent[f.name]; seq++ {
				if f.came[seq]+f.named[seq] == 0 {
					return false
				}
			}
			return true
		}
		for _, f := range clients {
			f.slow = false
		}
		for n := 0; slices.ContainsFunc(clients, func(f *heard) bool { return !f.ended && !complete(f) }); n++ {
			if n > 2000 {
				t.Fatalf("%v were sent, and came %s", sent, clients)
			}
			w.rankAll()
			for _, f := range clients {
				f.check()
				f.ackOne(0)
			}
			w.pass(Tick)
		}
		for w.h.ranked.room.Len() > 0 {
			w.rankAll()
		}
		if w.h.ranked.room.Bytes() != 0 {
			t.Fatalf("%d bytes of candidates are counted, and there are none", w.h.ranked.room.Bytes())
		}
		for _, f := range clients {
			if f.ended && memory == 0 && !f.late {
				t.Fatalf("a connection has ended: %s", f)
			}
			for seq := uint64(1); seq <= sent[f.name] && !f.ended; seq++ {
				if f.came[seq]+f.named[seq] != 1 {
					t.Fatalf("%s/%d came %d times and was named %d times", f.name, seq, f.came[seq], f.named[seq])
				}
			}
		}
	})
}

func (f *heard) String() string {
	return fmt.Sprintf("%s: %v, named %v, ended %v", f.name, f.came, f.named, f.ended)
}

// A session with a ranked subscription that comes and goes sees every message, and what it has
// ACKed never again.
func TestRankedSessionSeesEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := rankedWorld(t, Limits{QueueMessages: rapid.IntRange(1, 12).Draw(t, "queue")}, rapid.Uint32Range(1, 6).Draw(t, "most"))
		f := &holder{w: w, filter: "feed/1", topK: 2, seen: map[spot]bool{}, acked: map[spot]bool{}}
		sent, left := uint64(0), []*exchange.Ranking(nil)
		f.connect()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 8).Draw(t, "op") {
			case 0, 1:
				w.mesh.Send(f.filter, fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "worth")))
				sent++
			case 2:
				w.mesh.Append(f.filter, "3")
				sent++
			case 3:
				f.ackOne(rapid.IntRange(0, 100).Draw(t, "which"))
			case 4, 5:
				left = w.answerSome(t, left)
			case 6:
				f.unacked = nil
				w.h.Gone(f.c.slot)
				w.settle()
				f.connect()
			case 7:
				w.pass(time.Duration(rapid.IntRange(0, 1000).Draw(t, "ms")) * time.Millisecond)
			case 8:
				w.mesh.Release()
			}
			f.look()
		}
		w.mesh.Release()
		for _, r := range left {
			w.mesh.Answer(r, byPayload)
		}
		w.mesh.Send(f.filter, "1")
		sent++
		for n := 0; uint64(len(f.seen)) < sent; n++ {
			if n > 1000 {
				t.Fatalf("seen %d of %d", len(f.seen), sent)
			}
			w.rankAll()
			f.look()
			f.ackOne(0)
			w.pass(Tick)
		}
	})
}

// A ranked message that was taken back from the middle of a window, because the edge had no memory
// left, and is handed on again, is the window's once: its ACK is heard, and its timer runs.
func TestARankedMessageThatIsTakenBackIsFoundAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Limits{})
	c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000, ReceiveWindow: 8})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/0", Ack: true})
	tr := w.h.conns.Get(c.slot).Tracks.At(0)
	msgs := w.mesh.Append("room/0", "1", "2", "3")
	for _, i := range []int{0, 2, 1} {
		w.h.windows.add(tr, msgs[i], 0)
	}
	w.h.windows.takeBack(tr, msgs[1].Seq)
	w.h.windows.add(tr, msgs[1], 0)
	if e := tr.Win.Find(msgs[1].Seq); e == nil || e.Message != msgs[1] {
		t.Error("it is not found")
	}
	if n := len(tr.Win.Live()); n != 3 {
		t.Errorf("the window has %d places, want 3", n)
	}
	for _, m := range msgs {
		w.h.windows.takeBack(tr, m.Seq)
	}
}
