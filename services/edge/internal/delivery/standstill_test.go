package delivery

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// stubborn is a client with a session that ACKs everything but some messages.
type stubborn struct {
	*client
	never map[uint64]bool
	nacks bool // refuses them instead
	seen  map[uint64]bool
	came  map[uint64]int // how often one that it never ACKs did
}

func (s *stubborn) look() {
	s.take()
	var entries []*wirev1.Ack_Entry
	got := s.got
	s.got = nil
	for _, fr := range got {
		m, ok := fr.m.(*wirev1.Message)
		switch {
		case !ok:
		case !s.never[m.GetSeq()]:
			entries = append(entries, &wirev1.Ack_Entry{Topic: m.GetTopic(), Seq: m.GetSeq()})
		default:
			s.came[m.GetSeq()]++
			if s.nacks {
				s.send(wirev1.FrameType_FRAME_TYPE_NACK, &wirev1.Nack{Topic: m.GetTopic(), Seq: m.GetSeq()})
			}
		}
		if ok {
			s.seen[m.GetSeq()] = true
		}
	}
	if len(entries) > 0 {
		s.send(wirev1.FrameType_FRAME_TYPE_ACK, &wirev1.Ack{Entries: entries})
	}
}

func (w *world) stubborn(window uint32, never ...uint64) *stubborn {
	w.t.Helper()
	s := &stubborn{client: w.dial(), never: map[uint64]bool{}, seen: map[uint64]bool{}, came: map[uint64]int{}}
	for _, seq := range never {
		s.never[seq] = true
	}
	s.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, ClientId: "ann", Session: "inbox", HeartbeatMs: 600_000, ReceiveWindow: window})
	s.subscribeSession("room/1")
	return s
}

// A session that comes to stand 65,536 messages behind one that is never ACKed gets it again until
// it is a dead letter, on the same connection.
func TestASessionDoesNotStandStillForGood(t *testing.T) {
	const most = 1<<16 + 500
	w := newWorld(t, Limits{})
	s := w.stubborn(4096, 1)
	w.mesh.Append("room/1", payloads(0, most)...)
	w.mesh.Send("room/1", "last")
	standing := false
	for n := 0; len(s.seen) <= most; n++ {
		if n > 1500 {
			t.Fatalf("it stands still behind %d messages; the first came %d times", len(s.seen), s.came[1])
		}
		s.look()
		standing = standing || w.h.Stats().StandingNow == 1
		if w.pass(10 * time.Millisecond); len(s.seen) >= 1<<16 {
			w.pass(200 * time.Millisecond)
			w.h.Relieve() // looks at who is behind, once a second
		}
	}
	w.pass(300 * time.Millisecond)
	if s.came[1] != policy.DefaultMaxAttempts || len(w.mesh.Letters) != 1 || w.mesh.Letters[0].GetSeq() != 1 || w.mesh.Letters[0].GetAttempts() != policy.DefaultMaxAttempts {
		t.Fatalf("it came %d times, dead letters %v", s.came[1], w.mesh.Letters)
	}
	if !standing || w.h.Stats().StandStills == 0 {
		t.Error("no metric says that it stood still")
	}
}

// However far a session may be ahead of what it has not settled, and whatever it never ACKs: all
// else comes, and what is in its way ends as dead letters.
func TestNothingHoldsASessionUpForGood(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, Limits{Span: rapid.IntRange(1, 20).Draw(t, "span"), QueueMessages: rapid.SampledFrom([]int{4, 64, 1024}).Draw(t, "queue"), ReadBytes: rapid.SampledFrom([]int{60, 128 << 10}).Draw(t, "read")})
		total := rapid.IntRange(20, 80).Draw(t, "messages")
		never := rapid.SliceOfNDistinct(rapid.Uint64Range(1, uint64(total)), 0, 4, func(seq uint64) uint64 { return seq }).Draw(t, "never ACKed")
		s := w.stubborn(16, never...)
		s.nacks = rapid.Bool().Draw(t, "NACKs")
		for at := 0; at < total; {
			n := min(rapid.IntRange(1, 20).Draw(t, "run"), total-at)
			at += n
			if rapid.Bool().Draw(t, "live") {
				w.mesh.Send("room/1", payloads(0, n)...)
			} else {
				w.mesh.Append("room/1", payloads(0, n)...)
			}
			s.look()
			if rapid.IntRange(0, 9).Draw(t, "break") == 0 { // it goes on over another connection
				w.h.Gone(s.slot)
				w.settle()
				again := w.stubborn(16, never...)
				again.nacks, again.seen, again.came = s.nacks, s.seen, s.came
				s = again
			}
		}
		w.mesh.Send("room/1", "last")
		for n := 0; len(s.seen) <= total; n++ {
			if n > 3000 {
				t.Fatalf("%d of %d came, dead letters %v, never ACKed %v", len(s.seen), total+1, len(w.mesh.Letters), never)
			}
			s.look()
			w.pass(100 * time.Millisecond)
		}
		letters := map[uint64]int{}
		w.pass(300 * time.Millisecond)
		for _, l := range w.mesh.Letters {
			letters[l.GetSeq()]++
		}
		for seq, n := range letters {
			if !s.never[seq] || n > 1 || s.came[seq] > 2*policy.DefaultMaxAttempts {
				t.Fatalf("%d is a dead letter %d times after it came %d times; never ACKed are %v", seq, n, s.came[seq], never)
			}
		}
		if first := w.mesh.Session("client:ann", "inbox").Cursors["room/1"].GetFloor() + 1; first+uint64(w.h.lim.Span) < uint64(total)+1 {
			t.Fatalf("the session is at %d of %d", first, total+1)
		}
	})
}
