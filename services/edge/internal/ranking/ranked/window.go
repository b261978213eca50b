package ranked

import (
	"math"
	"strings"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// maxWindowBytes of messages end a window before its time.
const maxWindowBytes = 1 << 20

// window is the candidates of a topic that have come since it began. Durable ones have consecutive
// seqs; those who wait for them read what is not there from the log. Of ephemeral ones it has all
// that there will be.
type window[M any] struct {
	serial   uint64
	topic    string
	policy   *policy.Policy
	epoch    uint64 // 0: ephemeral
	messages []*exchange.Message
	fresh    int            // of messages: where those added last begin
	waiting  []M            // for durable messages
	members  []gathering[M] // for ephemeral ones
	bytes    int
}

// gathering is a member that ephemeral candidates are for, from one of them on.
type gathering[M any] struct {
	member M
	from   int
}

// Gathers reports whether candidates of a topic gather.
func (r *Room[M]) Gathers(topic string) bool { return r.windows[topic] != nil }

// Begin begins the window of a topic that has none, with the messages in hand if they are of it.
func (r *Room[M]) Begin(topic string, p *policy.Policy, epoch uint64, inHand []*exchange.Message) {
	r.begin(topic, p, epoch, inHand)
}

func (r *Room[M]) begin(topic string, p *policy.Policy, epoch uint64, inHand []*exchange.Message) *window[M] {
	r.serials++
	w := &window[M]{serial: r.serials, topic: strings.Clone(topic), policy: p, epoch: epoch}
	r.windows[w.topic], r.bySerial[w.serial] = w, w
	r.cfg.Mesh.Gather(exchange.Gathering{Loop: r.cfg.Loop, Serial: w.serial, Window: p.RankWindow()})
	if len(inHand) > 0 && inHand[0].Topic == topic && inHand[0].Epoch == epoch {
		r.add(w, inHand)
	}
	return w
}

// Gather has live messages with consecutive seqs gather with those of their topic that came before.
// A window that has no room for them ends.
func (r *Room[M]) Gather(ms []*exchange.Message) {
	switch w := r.windows[ms[0].Topic]; {
	case w == nil:
	case w.takes(ms):
		r.add(w, ms)
	default:
		r.end(w)
	}
}

// Await has a member wait for the window of a topic, which begins where there is none.
func (r *Room[M]) Await(topic string, p *policy.Policy, epoch uint64, inHand []*exchange.Message, m M) {
	w := r.windows[topic]
	if w == nil {
		w = r.begin(topic, p, epoch, inHand)
	}
	w.waiting = append(w.waiting, m)
}

// Join makes a member one that the ephemeral messages in hand gather for. joined is the serial of
// the window that it joined last. Where joins is false they go to the member at once, and mark says
// how: there is no room for more, or the namespace does not rank.
func (r *Room[M]) Join(inHand []*exchange.Message, policyFor func(topic string) *policy.Policy, m M, joined *uint64) (mark sendq.Mark, joins bool) {
	topic := inHand[0].Topic
	w := r.windows[topic]
	if w == nil {
		p := policyFor(topic)
		switch {
		case p.Rank == nil:
			return 0, false
		case r.full():
			r.cfg.Delivery.Unranked(wirev1.Code_CODE_MEMORY_BUDGET, len(inHand))
			return sendq.Unranked, false
		}
		w = r.begin(topic, p, 0, inHand)
	}
	if *joined != w.serial {
		*joined = w.serial
		w.members = append(w.members, gathering[M]{member: m, from: w.fresh})
	}
	return 0, true
}

// takes reports whether the window of its topic has room for messages; where not, it must end.
func (w *window[M]) takes(ms []*exchange.Message) bool {
	n := len(w.messages)
	return n == 0 || n+len(ms) <= w.policy.RankCandidates() && w.bytes < maxWindowBytes && (ms[0].Seq == 0) == (w.epoch == 0)
}

// add adds messages with consecutive seqs to the window of their topic. Durable ones that do not
// follow those that it has take their place.
func (r *Room[M]) add(w *window[M], ms []*exchange.Message) {
	if n := len(w.messages); w.epoch != ms[0].Epoch || n > 0 && w.epoch > 0 && w.messages[n-1].Seq+1 != ms[0].Seq {
		r.bytes -= w.bytes
		w.epoch, w.messages, w.bytes = ms[0].Epoch, nil, 0
	}
	w.fresh = len(w.messages)
	if w.epoch > 0 && r.full() {
		return // who waits reads the log
	}
	w.messages = append(w.messages, ms...)
	for _, m := range ms {
		w.bytes += m.Size()
		r.bytes += m.Size()
	}
}

// Ended ends the window with a serial, whose time has passed.
func (r *Room[M]) Ended(serial uint64) {
	if w := r.bySerial[serial]; w != nil {
		r.end(w)
	}
}

// end ends a window, and has what gathered ranked for those who wait for it.
func (r *Room[M]) end(w *window[M]) {
	delete(r.windows, w.topic)
	delete(r.bySerial, w.serial)
	r.bytes -= w.bytes
	switch {
	case len(w.waiting) > 0:
		r.cfg.Delivery.Arrived(w.asRange(), w.waiting)
	case len(w.members) > 0:
		for at := 0; at < len(w.messages); at += w.policy.RankCandidates() {
			r.cfg.Jobs.Push(&closing[M]{room: r, w: w, at: at})
		}
	}
}

// asRange is the durable messages as the log would give them.
func (w *window[M]) asRange() *exchange.Range {
	e := &exchange.Range{Topic: w.topic, From: math.MaxUint64, Epoch: w.epoch, Messages: w.messages}
	if n := len(w.messages); n > 0 {
		e.From, e.Oldest, e.Head = w.messages[0].Seq, w.messages[0].Seq, w.messages[n-1].Seq
	}
	return e
}
