package ranked

import (
	"slices"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
)

// memberSlice is how many members are looked at in one go.
const memberSlice = 256

// closing makes a ranking of ephemeral candidates, or of some of them, member by member.
type closing[M any] struct {
	room *Room[M]
	w    *window[M]
	at   int // of the messages
	next int // of the members
	k    *Ranking[M]
}

// Step implements walk.Job.
func (j *closing[M]) Step() bool {
	r, w := j.room, j.w
	if j.k == nil {
		j.k = r.candidates(w.topic, w.policy, w.messages[j.at:min(j.at+w.policy.RankCandidates(), len(w.messages))])
	}
	for range r.cfg.Cost.Slice(memberSlice) {
		if j.next == len(w.members) {
			r.Request(j.k)
			return true
		}
		g := w.members[j.next]
		j.next++
		if i, ok := r.cfg.Delivery.Interest(g.member, w.topic); ok {
			r.addGathered(j.k, g.member, g.from-j.at, &i)
		}
	}
	return false
}

// addGathered adds a member that gets what it wants of the messages from one on.
func (r *Room[M]) addGathered(k *Ranking[M], m M, from int, i *Interest) {
	topK := max(i.TopK, 1)
	if i.Wants == nil && from <= 0 {
		k.add(m, i.Profile, topK, nil)
		return
	}
	var places []uint32
	for at := max(from, 0); at < len(k.messages); at++ {
		if i.Wants == nil || i.Wants(k.messages[at]) {
			places = append(places, uint32(at))
		} else {
			r.cfg.Delivery.Dropped(wirev1.Code_CODE_FILTERED, 1)
		}
	}
	r.cfg.Cost.Add(len(k.messages))
	if len(places) > 0 {
		k.add(m, i.Profile, topK, places)
	}
}

// answering takes an answer up, member by member.
type answering[M any] struct {
	room *Room[M]
	k    *Ranking[M]
	next int // of the members
}

// Step implements walk.Job.
func (j *answering[M]) Step() bool {
	r, k := j.room, j.k
	for n := 0; n < memberSlice && j.next < len(k.members); n += 1 + r.cfg.Cost.Take() {
		i := j.next
		j.next++
		if k.of != nil {
			r.cfg.Delivery.GoOn(k.members[i], k)
		} else {
			n += r.send(k, i)
		}
	}
	return j.next == len(k.members)
}

// send sends what one member gets of an ephemeral ranking, and says how many messages that is.
func (r *Room[M]) send(k *Ranking[M], member int) (n int) {
	r.picks = r.pick(k, member, r.picks[:0])
	n = len(r.picks)
	there := r.cfg.Delivery.Send(k.members[member], r.picks)
	clear(r.picks)
	if !there {
		return 0
	}
	wanted := k.wanted(member)
	if k.answer.Err != nil {
		r.cfg.Delivery.Unranked(code.Of(k.answer.Err), wanted)
		return n
	}
	answer := &k.answer.Members[member]
	r.cfg.Delivery.Dropped(wirev1.Code_CODE_FILTERED, len(answer.Filtered))
	if k.skipsRest() {
		r.cfg.Delivery.Dropped(wirev1.Code_CODE_RANKED_OUT, wanted-len(answer.Best)-len(answer.Filtered))
	}
	return n
}

// pick adds what one member gets to picks: the best first, then the rest as it came. Where the
// ranking failed that is all it wants.
func (r *Room[M]) pick(k *Ranking[M], member int, picks []Pick) []Pick {
	if k.answer.Err != nil {
		for i := range k.wanted(member) {
			picks = append(picks, Pick{k.messages[k.place(member, i)], sendq.Unranked})
		}
		return picks
	}
	answer := &k.answer.Members[member]
	for _, b := range answer.Best {
		picks = append(picks, Pick{k.messages[b.Place], sendq.Scored(b.Score)})
	}
	if k.skipsRest() {
		return picks
	}
	r.taken = slices.Grow(r.taken[:0], len(k.messages))[:len(k.messages)]
	clear(r.taken)
	for _, b := range answer.Best {
		r.taken[b.Place] = true
	}
	for _, place := range answer.Filtered {
		r.taken[place] = true
	}
	for i := range k.wanted(member) {
		if place := k.place(member, i); !r.taken[place] {
			picks = append(picks, Pick{Message: k.messages[place]})
		}
	}
	return picks
}
