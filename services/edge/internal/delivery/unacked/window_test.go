package unacked

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/edge/internal/cursor"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

func message(seq uint64) *exchange.Message {
	return &exchange.Message{Topic: "room/1", Epoch: 7, Seq: seq}
}

// Whatever order messages are added and removed in, the window finds exactly those that are in it,
// in order, and begins and ends with messages.
func TestWindowAgreesWithMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, want := &Window{}, map[uint64]bool{}
		seq := rapid.Uint64Range(1, 30)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				if n := seq.Draw(t, "seq"); !want[n] {
					w.Add(message(n), 0)
					want[n] = true
				}
			},
			"remove": func(t *rapid.T) {
				n := seq.Draw(t, "seq")
				e := w.Find(n)
				if (e != nil) != want[n] {
					t.Fatalf("%d is found: %v, want %v", n, e != nil, want[n])
				}
				if e != nil {
					w.Remove(e)
					delete(want, n)
				}
			},
			"": func(t *rapid.T) {
				var got []uint64
				for _, e := range w.Live() {
					if e.Message != nil {
						got = append(got, e.Seq)
					}
				}
				if all := slices.Sorted(maps.Keys(want)); !slices.Equal(got, all) {
					t.Fatalf("%v are in the window, want %v", got, all)
				}
				if live := w.Live(); len(live) > 0 && (live[0].Message == nil || live[len(live)-1].Message == nil) {
					t.Fatal("a message that was removed is at an end of the window")
				}
				if w.IsEmpty() != (len(want) == 0) {
					t.Fatalf("with %d messages IsEmpty is %v", len(want), w.IsEmpty())
				}
				from := seq.Draw(t, "from")
				if i := w.From(from); i < w.End() && w.At(i).Seq < from || i > w.First() && w.At(i-1).Seq >= from {
					t.Fatalf("From(%d) is place %d of %d to %d", from, i, w.First(), w.End())
				}
			},
		})
	})
}

func TestLastSentIsTheHighestThatLeft(t *testing.T) {
	w := &Window{}
	for seq := range uint64(4) {
		w.Add(message(seq+1), 0)
	}
	if n := w.LastSent(); n != 0 {
		t.Fatalf("nothing has left, and the last sent is %d", n)
	}
	w.Find(1).Sent(5)
	w.Find(3).Sent(5)
	if n := w.LastSent(); n != 3 {
		t.Fatalf("the last sent is %d, want 3", n)
	}
	w.Remove(w.Find(3))
	if n := w.LastSent(); n != 1 {
		t.Fatalf("the last sent is %d, want 1", n)
	}
}

// A message that is sent again has one more attempt; one that found no room has not.
func TestAttemptsCountWhatWasSent(t *testing.T) {
	w := &Window{}
	w.Add(message(1), 2)
	e := w.Find(1)
	e.Sent(9)
	e.Again()
	if e.Attempt != 3 || e.Due != 0 || !e.Queued {
		t.Fatalf("queued again: %+v", *e)
	}
	e.TakeBack()
	if e.Attempt != 2 || e.Queued {
		t.Fatalf("taken back: %+v", *e)
	}
	for range 300 {
		e.Sent(9)
	}
	if e.Sends != 254 {
		t.Fatalf("sent %d times", e.Sends)
	}
}

func TestUnparkTakesWhatAnACKCovers(t *testing.T) {
	w := &Window{}
	for _, seq := range []uint64{3, 5, 8} {
		w.Park(seq)
	}
	var acked []uint64
	note := func(seq uint64) { acked = append(acked, seq) }
	if n := w.Unpark(false, 4, note); n != 0 || w.Parked() != 3 {
		t.Fatalf("an ACK of another message takes %d", n)
	}
	if n := w.Unpark(false, 8, note); n != 1 {
		t.Fatalf("an ACK of one takes %d", n)
	}
	if n := w.Unpark(true, 5, note); n != 2 || !w.IsEmpty() || !slices.Equal(acked, []uint64{8, 3, 5}) {
		t.Fatalf("an ACK through 5 takes %d: %v", n, acked)
	}
}

// A cursor has the attempts of what is with the client counted, and nothing of another epoch.
func TestAttemptsGoIntoTheCursor(t *testing.T) {
	w := &Window{}
	for seq := range uint64(4) {
		w.Add(message(seq+1), uint16(seq))
	}
	w.Find(1).Sent(9)       // with the client: its first attempt
	w.Find(3).Sent(9)       // its third
	w.At(3).Message.Epoch++ // of another log
	stored := &meshv1.SessionCursor{Epoch: 7}
	w.AddAttempts(stored)
	if want := map[uint64]uint32{1: 1, 2: 1, 3: 3}; !maps.Equal(stored.GetAttempts(), want) {
		t.Fatalf("attempts %v, want %v", stored.GetAttempts(), want)
	}
	cur := &cursor.Cursor{Epoch: 7}
	w.KeepAttempts(cur)
	for seq, want := range map[uint64]uint32{1: 1, 2: 1, 3: 3, 4: 0} {
		if n := cur.Attempts(seq); n != want {
			t.Fatalf("%d was attempted %d times, want %d", seq, n, want)
		}
	}
}

// Windows that nobody uses are kept for others, up to a bound, but for large ones.
func TestWhatIsKeptForOthersIsBounded(t *testing.T) {
	var p Pool
	fill := func(w *Window, n uint64) *Window {
		for seq := range n {
			w.Add(message(seq+1), 0)
		}
		w.Clear()
		return w
	}
	large, small := fill(p.Take(), 3*KeptEntries), fill(&Window{}, 2)
	p.Give(large)
	p.Give(small)
	if p.Take() != small {
		t.Fatal("a small window that was given back is not used again")
	}
	if len(p.free) != 0 {
		t.Fatal("a large window is kept")
	}
	for range KeptWindows + 1 {
		p.Give(&Window{})
	}
	if len(p.free) != KeptWindows {
		t.Fatalf("%d windows are kept, want %d", len(p.free), KeptWindows)
	}
}
