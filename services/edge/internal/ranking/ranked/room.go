// Package ranked is what an event loop knows of ranked delivery: the candidates of topics that gather
// for a window, the rankings that are under way for those who wait, and the order in which one of
// them is handed what a ranking says. Package ranking does the ranking itself, off the loops. Members
// are delivery's own, of type M: who waits, whoever that is.
package ranked

import (
	"strings"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// Mesh is what a loop asks of the edge's ranking.
type Mesh interface {
	Gather(g exchange.Gathering)
	Rank(r *exchange.Ranking)
}

// maxWindowBytes of messages end a window before its time.
const maxWindowBytes = 1 << 20

// Room is the windows and rankings of one loop, used by that loop alone.
type Room[M any] struct {
	loop     uint16
	mesh     Mesh
	most     int // bytes of candidates
	cost     *walk.Cost
	windows  map[string]*Window[M] // by topic
	bySerial map[uint64]*Window[M]
	underWay map[uint64]*Ranking[M]
	bytes    int // of the candidates of both
	serials  uint64
}

// New makes one whose candidates may take up so many bytes.
func New[M any](loop uint16, mesh Mesh, most int, cost *walk.Cost) *Room[M] {
	return &Room[M]{
		loop: loop, mesh: mesh, most: most, cost: cost,
		windows: map[string]*Window[M]{}, bySerial: map[uint64]*Window[M]{}, underWay: map[uint64]*Ranking[M]{},
	}
}

// Bytes of all candidates.
func (r *Room[M]) Bytes() int { return r.bytes }

// Full reports whether candidates take up as much memory as they may.
func (r *Room[M]) Full() bool { return r.bytes > r.most }

// Len is how many windows and rankings there are.
func (r *Room[M]) Len() int { return len(r.bySerial) + len(r.underWay) }

// Window is the candidates of a topic that have come since it began. Durable ones have consecutive
// seqs; those who wait for them read what is not there from the log. Of ephemeral ones it has all
// that there will be.
type Window[M any] struct {
	Serial   uint64
	Topic    string
	Policy   *policy.Policy
	Epoch    uint64 // 0: ephemeral
	Messages []*exchange.Message
	Fresh    int            // of Messages: where those added last begin
	Waiting  []M            // for durable messages
	Members  []Gathering[M] // for ephemeral ones
	bytes    int
}

// Gathering is a member that ephemeral candidates are for, from one of them on.
type Gathering[M any] struct {
	Member M
	From   int
}

// Window of a topic; nil: there is none.
func (r *Room[M]) Window(topic string) *Window[M] { return r.windows[topic] }

// Begin begins the window of a topic that has none.
func (r *Room[M]) Begin(topic string, p *policy.Policy, epoch uint64) *Window[M] {
	r.serials++
	w := &Window[M]{Serial: r.serials, Topic: strings.Clone(topic), Policy: p, Epoch: epoch}
	r.windows[w.Topic], r.bySerial[w.Serial] = w, w
	r.mesh.Gather(exchange.Gathering{Loop: r.loop, Serial: w.Serial, Window: p.RankWindow()})
	return w
}

// Takes reports whether the window of its topic has room for messages; where not, it must end.
func (w *Window[M]) Takes(ms []*exchange.Message) bool {
	n := len(w.Messages)
	return n == 0 || n+len(ms) <= w.Policy.RankCandidates() && w.bytes < maxWindowBytes && (ms[0].Seq == 0) == (w.Epoch == 0)
}

// Add adds messages with consecutive seqs to the window of their topic. Durable ones that do not
// follow those that it has take their place.
func (r *Room[M]) Add(w *Window[M], ms []*exchange.Message) {
	if n := len(w.Messages); w.Epoch != ms[0].Epoch || n > 0 && w.Epoch > 0 && w.Messages[n-1].Seq+1 != ms[0].Seq {
		r.bytes -= w.bytes
		w.Epoch, w.Messages, w.bytes = ms[0].Epoch, nil, 0
	}
	w.Fresh = len(w.Messages)
	if w.Epoch > 0 && r.Full() {
		return // who waits reads the log
	}
	w.Messages = append(w.Messages, ms...)
	for _, m := range ms {
		w.bytes += m.Size()
		r.bytes += m.Size()
	}
}

// Ended takes the window with a serial away, whose time is over; nil: it has ended before.
func (r *Room[M]) Ended(serial uint64) *Window[M] {
	w := r.bySerial[serial]
	if w != nil {
		r.End(w)
	}
	return w
}

// End takes a window away.
func (r *Room[M]) End(w *Window[M]) {
	delete(r.windows, w.Topic)
	delete(r.bySerial, w.Serial)
	r.bytes -= w.bytes
}

// Ranking is messages that are being ranked, off the loop, for all who wait for the same ones.
type Ranking[M any] struct {
	Messages []*exchange.Message
	Range    *exchange.Range // that they are of; nil: they are ephemeral
	Plain    bool            // no message has an end, and none is missing between them
	Members  []M
	Answered bool
	Answer   exchange.Ranked

	serial  uint64
	topic   string
	policy  *policy.Policy
	bytes   int
	request []exchange.RankMember // of the members, one by one
}

// Candidates makes a ranking of messages that has no members yet.
func (r *Room[M]) Candidates(topic string, p *policy.Policy, messages []*exchange.Message) *Ranking[M] {
	r.serials++
	k := &Ranking[M]{serial: r.serials, topic: topic, policy: p, Messages: messages, Plain: true}
	for i, m := range messages {
		k.bytes += m.Size()
		k.Plain = k.Plain && m.ExpiresAt == 0 && m.Seq == messages[0].Seq+uint64(i)
	}
	r.cost.Add(len(messages))
	return k
}

// Add adds a member that wants so many of the best; places nil: it may get all messages.
func (k *Ranking[M]) Add(m M, profile *exchange.Profile, topK uint32, places []uint32) {
	k.Members = append(k.Members, m)
	k.request = append(k.request, exchange.RankMember{Profile: profile, TopK: topK, Places: places})
}

// Wanted is how many messages a member may get.
func (k *Ranking[M]) Wanted(member int) int {
	if places := k.request[member].Places; places != nil {
		return len(places)
	}
	return len(k.Messages)
}

// Place of the i-th message that a member may get.
func (k *Ranking[M]) Place(member, i int) int {
	if places := k.request[member].Places; places != nil {
		return int(places[i])
	}
	return i
}

// SkipsRest reports whether what is not among the best is left out.
func (k *Ranking[M]) SkipsRest() bool {
	return k.policy.Rank.GetRest() == pushmeshv1.RankPolicy_REST_SKIP
}

// Request asks for a ranking, unless nobody waits for it.
func (r *Room[M]) Request(k *Ranking[M]) {
	if len(k.Members) == 0 {
		return
	}
	r.underWay[k.serial] = k
	r.bytes += k.bytes
	r.mesh.Rank(&exchange.Ranking{Loop: r.loop, Serial: k.serial, Topic: k.topic, Policy: k.policy, Messages: k.Messages, Members: k.request})
}

// Answered takes the answer to a request up; nil: nobody waits for it.
func (r *Room[M]) Answered(e exchange.Ranked) *Ranking[M] {
	k := r.underWay[e.Serial]
	if k == nil {
		return nil
	}
	delete(r.underWay, e.Serial)
	r.bytes -= k.bytes
	if e.Err == nil && len(e.Members) != len(k.Members) {
		e.Err = code.New(wirev1.Code_CODE_INTERNAL, "a ranking has another number of members")
	}
	k.Answered, k.Answer = true, e
	return k
}
