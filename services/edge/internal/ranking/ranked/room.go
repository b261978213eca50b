// Package ranked is what an event loop decides of ranked delivery: the candidates of topics that
// gather for a window, the rankings that are under way for those who wait, and the order in which
// one of them is handed what a ranking says. Package ranking does the ranking itself, off the
// loops. Members are delivery's own, of type M: who waits, whoever that is.
package ranked

import (
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// Mesh is what a loop asks of the edge's ranking.
type Mesh interface {
	Gather(g exchange.Gathering)
	Rank(r *exchange.Ranking)
}

// Delivery is what ranked delivery needs of the loop's delivery. Members may be gone by now.
type Delivery[M any] interface {
	// Arrived has durable candidates ranked for the members that waited for their window.
	Arrived(e *exchange.Range, waiting []M)
	// GoOn has a member go on that waits for a ranking, which is answered.
	GoOn(m M, k *Ranking[M])
	// Interest is what a member gets of the ephemeral messages of a topic; false: it is gone.
	Interest(m M, topic string) (i Interest, ok bool)
	// Send queues ephemeral messages for a member, in this order; false: it is gone.
	Send(m M, picks []Pick) (ok bool)
	// Dropped counts messages that do not come, Unranked those that come without a rank, by why.
	Dropped(why wirev1.Code, n int)
	Unranked(why wirev1.Code, n int)
}

// Interest of a member in ephemeral candidates: it gets so many of the best of those it wants.
type Interest struct {
	Profile *exchange.Profile
	TopK    uint32
	Wants   func(*exchange.Message) bool // nil: it wants all
}

// Pick is a message that a member gets.
type Pick struct {
	Message *exchange.Message
	Mark    sendq.Mark
}

// Config of a Room.
type Config[M any] struct {
	Loop     uint16
	Delivery Delivery[M]
	Mesh     Mesh
	Most     int // bytes of candidates
	Jobs     *walk.Jobs
	Cost     *walk.Cost
}

// Room is the windows and rankings of one loop, used by that loop alone.
type Room[M any] struct {
	cfg      Config[M]
	windows  map[string]*window[M] // by topic
	bySerial map[uint64]*window[M]
	underWay map[uint64]*Ranking[M]
	bytes    int // of the candidates of both
	serials  uint64

	best  []uint32 // scratch: places of the best, ascending
	taken []bool   // scratch: places that a member does not get behind the best
	picks []Pick   // scratch
}

// New makes one without candidates.
func New[M any](cfg Config[M]) *Room[M] {
	return &Room[M]{cfg: cfg, windows: map[string]*window[M]{}, bySerial: map[uint64]*window[M]{}, underWay: map[uint64]*Ranking[M]{}}
}

// Bytes of all candidates.
func (r *Room[M]) Bytes() int { return r.bytes }

// full reports whether candidates take up as much memory as they may.
func (r *Room[M]) full() bool { return r.bytes > r.cfg.Most }

// Len is how many windows and rankings there are.
func (r *Room[M]) Len() int { return len(r.bySerial) + len(r.underWay) }

// Ranking is messages that are being ranked, off the loop, for all who wait for the same ones.
type Ranking[M any] struct {
	messages []*exchange.Message
	of       *exchange.Range // that they are of; nil: they are ephemeral
	plain    bool            // no message has an end, and none is missing between them
	members  []M
	answered bool
	answer   exchange.Ranked

	serial  uint64
	topic   string
	policy  *policy.Policy
	bytes   int
	request []exchange.RankMember // of the members, one by one
}

// candidates makes a ranking of messages that has no members yet.
func (r *Room[M]) candidates(topic string, p *policy.Policy, messages []*exchange.Message) *Ranking[M] {
	r.serials++
	k := &Ranking[M]{serial: r.serials, topic: topic, policy: p, messages: messages, plain: true}
	for i, m := range messages {
		k.bytes += m.Size()
		k.plain = k.plain && m.ExpiresAt == 0 && m.Seq == messages[0].Seq+uint64(i)
	}
	r.cfg.Cost.Add(len(messages))
	return k
}

// add adds a member that wants so many of the best; places nil: it may get all messages.
func (k *Ranking[M]) add(m M, profile *exchange.Profile, topK uint32, places []uint32) {
	k.members = append(k.members, m)
	k.request = append(k.request, exchange.RankMember{Profile: profile, TopK: topK, Places: places})
}

// wanted is how many messages a member may get.
func (k *Ranking[M]) wanted(member int) int {
	if places := k.request[member].Places; places != nil {
		return len(places)
	}
	return len(k.messages)
}

// place of the i-th message that a member may get.
func (k *Ranking[M]) place(member, i int) int {
	if places := k.request[member].Places; places != nil {
		return int(places[i])
	}
	return i
}

// skipsRest reports whether what is not among the best is left out.
func (k *Ranking[M]) skipsRest() bool {
	return k.policy.Rank.GetRest() == pushmeshv1.RankPolicy_REST_SKIP
}

// Request asks for a ranking, unless nobody waits for it.
func (r *Room[M]) Request(k *Ranking[M]) {
	if len(k.members) == 0 {
		return
	}
	r.underWay[k.serial] = k
	r.bytes += k.bytes
	r.cfg.Mesh.Rank(&exchange.Ranking{Loop: r.cfg.Loop, Serial: k.serial, Topic: k.topic, Policy: k.policy, Messages: k.messages, Members: k.request})
}

// Answered takes the answer to a request up, for its members one by one; false: nobody waits for
// it.
func (r *Room[M]) Answered(e exchange.Ranked) (ok bool) {
	k := r.underWay[e.Serial]
	if k == nil {
		return false
	}
	delete(r.underWay, e.Serial)
	r.bytes -= k.bytes
	if e.Err == nil && len(e.Members) != len(k.members) {
		e.Err = code.New(wirev1.Code_CODE_INTERNAL, "a ranking has another number of members")
	}
	k.answered, k.answer = true, e
	r.cfg.Jobs.Push(&answering[M]{room: r, k: k})
	return true
}
