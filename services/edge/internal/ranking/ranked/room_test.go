package ranked

import (
	"testing"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// asked is the mesh and the delivery that a room asks, whose members are numbers: those below 0 are
// gone.
type asked struct {
	gathers []exchange.Gathering
	ranks   []*exchange.Ranking
	arrived []*exchange.Range
	sent    map[int][]Pick
	goOn    int
	dropped map[wirev1.Code]int
	raw     int // messages that were not ranked
	wants   func(*exchange.Message) bool
}

func (a *asked) Gather(g exchange.Gathering)        { a.gathers = append(a.gathers, g) }
func (a *asked) Rank(r *exchange.Ranking)           { a.ranks = append(a.ranks, r) }
func (a *asked) Arrived(e *exchange.Range, _ []int) { a.arrived = append(a.arrived, e) }
func (a *asked) GoOn(int, *Ranking[int])            { a.goOn++ }
func (a *asked) Dropped(why wirev1.Code, n int)     { a.dropped[why] += n }
func (a *asked) Unranked(_ wirev1.Code, n int)      { a.raw += n }
func (a *asked) Interest(m int, _ string) (Interest, bool) {
	return Interest{TopK: 1, Wants: a.wants}, m >= 0
}
func (a *asked) Send(m int, picks []Pick) bool {
	a.sent[m] = append(a.sent[m], picks...)
	return m >= 0
}

// newRoom makes a room whose candidates take up so many bytes at most.
func newRoom(most int) (*Room[int], *asked) {
	a := &asked{sent: map[int][]Pick{}, dropped: map[wirev1.Code]int{}}
	return New(Config[int]{Delivery: a, Mesh: a, Most: most, Jobs: &walk.Jobs{}, Cost: &walk.Cost{}}), a
}

// ranking is a policy that ranks so many candidates at a time.
func ranking(most uint32) *policy.Policy {
	return &policy.Policy{Rank: &pushmeshv1.RankPolicy{MaxCandidates: most}}
}

func messages(epoch uint64, seqs ...uint64) (all []*exchange.Message) {
	for _, seq := range seqs {
		all = append(all, &exchange.Message{Topic: "news", Epoch: epoch, Seq: seq, Frame: make([]byte, 100)})
	}
	return all
}

// A window whose durable messages have a gap begins again behind it, and one that is full of them
// takes no more. Those who wait for it get what it has as a range.
func TestAWindowGathersWhatFollows(t *testing.T) {
	room, a := newRoom(1 << 20)
	room.Await("news", ranking(3), 5, messages(5, 1, 2), 1)
	w := room.windows["news"]
	if !room.Gathers("news") || len(w.messages) != 2 || len(a.gathers) != 1 || w.takes(messages(5, 3, 4)) || !w.takes(messages(5, 3)) || w.takes(messages(0, 0)) {
		t.Fatal("a window takes what follows its messages, as many as are ranked at a time")
	}
	room.Gather(messages(5, 9))
	if len(w.messages) != 1 || w.fresh != 0 {
		t.Fatalf("%d messages of a log with a gap between them", len(w.messages))
	}
	room.Ended(w.serial)
	room.Ended(w.serial)
	if len(a.arrived) != 1 || a.arrived[0].From != 9 || a.arrived[0].Head != 9 || room.Bytes() != 0 || room.Len() != 0 {
		t.Fatalf("%d bytes of a window that has ended, %v", room.Bytes(), a.arrived)
	}
	room.Begin("news", ranking(1), 5, nil)
	room.Gather(messages(5, 1))
	if room.Gather(messages(5, 2)); room.Gathers("news") || room.Bytes() != 0 {
		t.Fatal("a window that has no room does not end")
	}
}

// Candidates count until their ranking is answered, which is asked for where somebody waits for it.
func TestARankingCountsUntilItIsAnswered(t *testing.T) {
	room, a := newRoom(1 << 20)
	k := room.candidates("news", ranking(3), messages(5, 1, 2, 3))
	room.Request(k)
	if len(a.ranks) != 0 {
		t.Fatal("a ranking is asked for that nobody waits for")
	}
	k.add(1, nil, 1, nil)
	k.add(2, nil, 1, []uint32{2})
	if !k.plain || k.wanted(0) != 3 || k.place(0, 1) != 1 || k.wanted(1) != 1 || k.place(1, 0) != 2 {
		t.Fatal("members get the messages that they want")
	}
	room.Request(k)
	if room.Bytes() == 0 || room.Len() != 1 || len(a.ranks) != 1 {
		t.Fatal("a ranking under way counts")
	}
	e := exchange.Ranked{Serial: a.ranks[0].Serial, Members: make([]exchange.RankedMember, 1)}
	if !room.Answered(e) || !k.answered || k.answer.Err == nil || room.Answered(e) || room.Bytes() != 0 {
		t.Fatal("an answer for another number of members is one that failed, and is taken up once")
	}
	room.cfg.Jobs.Step()
	if len(a.sent[1]) != 3 || len(a.sent[2]) != 1 || a.raw != 4 {
		t.Fatalf("what could not be ranked comes as it is: %v, %d", a.sent, a.raw)
	}
}

// Candidates are bounded in bytes: who waits for durable ones reads the log then, and ephemeral
// ones go out at once.
func TestCandidatesAreBounded(t *testing.T) {
	room, a := newRoom(150)
	room.Begin("news", ranking(0), 5, messages(5, 1, 2))
	room.Gather(messages(5, 3))
	if w := room.windows["news"]; !room.full() || len(w.messages) != 2 {
		t.Fatalf("%d messages, full %t", len(w.messages), room.full())
	}
	other := messages(0, 0, 0)
	for _, m := range other {
		m.Topic = "flash"
	}
	var joined uint64
	policyFor := func(string) *policy.Policy { return ranking(0) }
	if mark, joins := room.Join(other, policyFor, 1, &joined); joins || mark == 0 || a.raw != 2 {
		t.Fatalf("%v, %v: %d were not ranked", mark, joins, a.raw)
	}
}

// Members of ephemeral candidates get the best of those that came since they joined, as far as they
// want them; what they do not get is counted, but not for those that are gone.
func TestMembersGetTheBestSinceTheyJoined(t *testing.T) {
	room, a := newRoom(1 << 20)
	p := ranking(0)
	p.Rank.Rest = pushmeshv1.RankPolicy_REST_SKIP
	policyFor := func(string) *policy.Policy { return p }
	ms := messages(0, 0, 0, 0, 0)
	var first, gone, late uint64
	room.Join(ms[:2], policyFor, 1, &first)
	room.Join(ms[:2], policyFor, 1, &first) // again
	room.Join(ms[:2], policyFor, -1, &gone)
	room.Gather(ms[2:])
	room.Join(ms[2:], policyFor, 2, &late)
	a.wants = func(m *exchange.Message) bool { return m != ms[3] }
	room.Ended(late)
	room.cfg.Jobs.Step()
	if len(a.ranks) != 1 || len(a.ranks[0].Members) != 2 || len(a.ranks[0].Members[0].Places) != 3 || len(a.ranks[0].Members[1].Places) != 1 || a.dropped[wirev1.Code_CODE_FILTERED] != 2 {
		t.Fatalf("asked for %v, %v are filtered", a.ranks[0].Members, a.dropped)
	}
	best := func(place uint32) exchange.RankedMember {
		return exchange.RankedMember{Best: []exchange.RankedPlace{{Place: place, Score: 1}}}
	}
	room.Answered(exchange.Ranked{Serial: a.ranks[0].Serial, Members: []exchange.RankedMember{best(1), best(2)}})
	room.cfg.Jobs.Step()
	if len(a.sent[1]) != 1 || a.sent[1][0].Message != ms[1] || len(a.sent[2]) != 1 || a.sent[2][0].Message != ms[2] || a.dropped[wirev1.Code_CODE_RANKED_OUT] != 2 {
		t.Fatalf("sent %v, dropped %v", a.sent, a.dropped)
	}
}
