package ranked

import (
	"testing"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

type asked struct {
	gathers []exchange.Gathering
	ranks   []*exchange.Ranking
}

func (a *asked) Gather(g exchange.Gathering) { a.gathers = append(a.gathers, g) }
func (a *asked) Rank(r *exchange.Ranking)    { a.ranks = append(a.ranks, r) }

func messages(epoch uint64, seqs ...uint64) (all []*exchange.Message) {
	for _, seq := range seqs {
		all = append(all, &exchange.Message{Topic: "news", Epoch: epoch, Seq: seq, Frame: make([]byte, 100)})
	}
	return all
}

// Candidates count until their ranking is answered. A window whose durable messages have a gap
// begins again behind it, and one that is full of them takes no more.
func TestWindowsAndRankings(t *testing.T) {
	var mesh asked
	room := New[int](0, &mesh, 1<<20, &walk.Cost{})
	p := &policy.Policy{Rank: &pushmeshv1.RankPolicy{MaxCandidates: 3}}
	w := room.Begin("news", p, 5)
	room.Add(w, messages(5, 1, 2))
	if room.Window("news") != w || len(mesh.gathers) != 1 || w.Takes(messages(5, 3, 4)) || !w.Takes(messages(5, 3)) || w.Takes(messages(0, 0)) {
		t.Fatal("a window takes what follows its messages, as many as are ranked at a time")
	}
	room.Add(w, messages(5, 9))
	if len(w.Messages) != 1 || w.Fresh != 0 {
		t.Fatalf("%d messages of a log with a gap between them", len(w.Messages))
	}
	if room.Ended(w.Serial) != w || room.Ended(w.Serial) != nil || room.Bytes() != 0 || room.Len() != 0 {
		t.Fatalf("%d bytes of a window that has ended", room.Bytes())
	}
	k := room.Candidates("news", p, messages(5, 1, 2, 3))
	room.Request(k)
	if len(mesh.ranks) != 0 {
		t.Fatal("a ranking is asked for that nobody waits for")
	}
	k.Add(1, nil, 1, nil)
	k.Add(2, nil, 1, []uint32{2})
	if !k.Plain || k.Wanted(0) != 3 || k.Place(0, 1) != 1 || k.Wanted(1) != 1 || k.Place(1, 0) != 2 {
		t.Fatal("members get the messages that they want")
	}
	room.Request(k)
	if room.Bytes() == 0 || room.Len() != 1 || len(mesh.ranks) != 1 {
		t.Fatal("a ranking under way counts")
	}
	e := exchange.Ranked{Serial: mesh.ranks[0].Serial, Members: make([]exchange.RankedMember, 1)}
	if room.Answered(e) != k || !k.Answered || k.Answer.Err == nil || room.Answered(e) != nil || room.Bytes() != 0 {
		t.Fatal("an answer for another number of members is one that failed, and is taken up once")
	}
}

// Candidates are bounded in bytes: who waits for durable ones reads the log then.
func TestCandidatesAreBounded(t *testing.T) {
	var mesh asked
	room := New[int](0, &mesh, 150, &walk.Cost{})
	w := room.Begin("news", &policy.Policy{Rank: &pushmeshv1.RankPolicy{}}, 5)
	room.Add(w, messages(5, 1, 2))
	room.Add(w, messages(5, 3))
	if !room.Full() || len(w.Messages) != 2 {
		t.Fatalf("%d messages, full %t", len(w.Messages), room.Full())
	}
}

func TestCheck(t *testing.T) {
	p := &policy.Policy{Rank: &pushmeshv1.RankPolicy{}}
	for name, c := range map[string]struct {
		m    *wirev1.Subscribe
		p    *policy.Policy
		code wirev1.Code
	}{
		"a session":          {&wirev1.Subscribe{Start: wirev1.Start_START_SESSION}, p, wirev1.Code_CODE_OK},
		"a group":            {&wirev1.Subscribe{Group: "g"}, p, wirev1.Code_CODE_UNSUPPORTED},
		"a position":         {&wirev1.Subscribe{Start: wirev1.Start_START_AFTER_SEQ}, p, wirev1.Code_CODE_UNSUPPORTED},
		"the newest alone":   {&wirev1.Subscribe{Overflow: wirev1.Overflow_OVERFLOW_CONFLATE}, p, wirev1.Code_CODE_UNSUPPORTED},
		"without the policy": {&wirev1.Subscribe{}, &policy.Policy{}, wirev1.Code_CODE_INVALID_ARGUMENT},
	} {
		got := wirev1.Code_CODE_OK
		if err := Check(c.m, c.p); err != nil {
			got = err.Code
		}
		if got != c.code {
			t.Errorf("%s: %v", name, got)
		}
	}
}
