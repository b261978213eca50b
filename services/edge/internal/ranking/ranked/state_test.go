package ranked

import (
	"slices"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// A message of an order is in the range in hand, may be in another one, or is gone: only what the
// log has no more is named as missing.
func TestAMessageIsHereElsewhereOrGone(t *testing.T) {
	if m, elsewhere := Find(nil, 5); m != nil || !elsewhere {
		t.Error("without a range it is gone")
	}
	e := &exchange.Range{From: 3, Messages: messages(5, 4, 5, 8)}
	for seq, want := range map[uint64]string{1: "elsewhere", 2: "elsewhere", 3: "gone", 4: "here", 5: "here", 6: "gone", 7: "gone", 8: "here", 9: "elsewhere", 100: "elsewhere"} {
		m, elsewhere := Find(e, seq)
		got := "gone"
		switch {
		case elsewhere:
			got = "elsewhere"
		case m != nil && m.Seq == seq:
			got = "here"
		}
		if got != want || m != nil && elsewhere {
			t.Errorf("%d is %s, want %s", seq, got, want)
		}
	}
	if m, elsewhere := Find(&exchange.Range{From: 3}, 3); m != nil || elsewhere {
		t.Error("what an empty range does not have is elsewhere")
	}
}

// aTrack has some outcomes, and wants everything else.
type aTrack struct {
	outcomes map[uint64]Outcome
	all      bool
	gaps     []gap
	expired  []uint64
}

type gap struct {
	from, to uint64
	why      wirev1.Code
}

func (a *aTrack) Outcome(m *exchange.Message) Outcome { return a.outcomes[m.Seq] }
func (a *aTrack) WantsAll(uint64, uint64) bool        { return a.all }
func (a *aTrack) Gap(from, to uint64, why wirev1.Code) {
	a.gaps = append(a.gaps, gap{from, to, why})
}
func (a *aTrack) Expire(m *exchange.Message) { a.expired = append(a.expired, m.Seq) }

// seqs of what is left of an order.
func (o *Order) seqs() (all []uint64) {
	for {
		next, ok := o.Next()
		if !ok {
			return all
		}
		all = append(all, next.Seq)
		o.Pop()
	}
}

// A member waits for its ranking, takes the answer up, is handed the best and then the rest; what
// it does not get is named, whether its messages are looked at one by one or not.
func TestAMemberIsHandedTheBestThenTheRest(t *testing.T) {
	for _, all := range []bool{false, true} {
		room, d := newRoom(1 << 20)
		e := &exchange.Range{Epoch: 5, From: 1, Oldest: 1, Head: 4, Messages: messages(5, 1, 2, 3, 4)}
		k := room.CandidatesOf(e, ranking(0))
		var s State[int]
		track := &aTrack{all: all}
		if s.Step(false) != Read || s.Step(true) != LineUp || !room.Ask(k, &s, 1, nil, 0, track) || !s.Level || s.Step(true) != Wait || !s.Awaits(k) {
			t.Fatal("a member that asked waits for the answer")
		}
		room.Request(k)
		best := []exchange.RankedPlace{{Place: 2, Score: 9}, {Place: 0, Score: 5}}
		room.Answered(exchange.Ranked{Serial: d.ranks[0].Serial, Members: []exchange.RankedMember{{Best: best}}})
		room.cfg.Jobs.Step()
		if d.goOn != 1 || s.Step(false) != TakeUp {
			t.Fatal("an answered member goes on")
		}
		l, of := s.TakeUp()
		if at := room.LineUp(l, &s, 0, track); of != e || at != 4 || s.Step(true) != HandOn || s.Step(false) != Read {
			t.Fatalf("it stands at %d", at)
		}
		if got := s.Order.seqs(); !slices.Equal(got, []uint64{3, 1, 2, 4}) || len(track.gaps) != 0 {
			t.Fatalf("it is handed %v, without %v", got, track.gaps)
		}
	}
}

// What the client has, what has expired or is filtered, and what the log has no more is not handed
// on, and each of it is named by its reason, once.
func TestWhatIsNotHandedOnIsNamed(t *testing.T) {
	room, _ := newRoom(1 << 20)
	var s State[int]
	track := &aTrack{outcomes: map[uint64]Outcome{4: Had, 5: Expired, 6: Filtered}}
	if at := room.LineUp(Unranked[int](messages(5, 1, 3, 4, 5, 6, 7)), &s, 1, track); at != 7 {
		t.Fatalf("it stands at %d", at)
	}
	if got := s.Order.seqs(); !slices.Equal(got, []uint64{3, 7}) {
		t.Fatalf("it is handed %v", got)
	}
	want := []gap{{2, 2, wirev1.Code_CODE_RETENTION}, {6, 6, wirev1.Code_CODE_FILTERED}}
	if !slices.Equal(track.gaps, want) || !slices.Equal(track.expired, []uint64{5}) {
		t.Fatalf("named are %v and %v", track.gaps, track.expired)
	}
	s.Order.PutBack(9, 0)
	if s.Forget(); s.Step(false) != Read || len(s.Order.Best) != 0 {
		t.Fatal("something is left of what is forgotten")
	}
}
