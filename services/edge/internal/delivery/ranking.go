package delivery

import (
	"slices"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// ranking is messages that are being ranked, off the loop, for all who wait for the same ones.
type ranking struct {
	serial   uint64
	topic    string
	policy   *policy.Policy
	messages []*exchange.Message
	rng      *exchange.Range // that they are of; nil: they are ephemeral
	bytes    int
	plain    bool // no message has an end, and none is missing between them
	members  []rankMember
	request  []exchange.RankMember // of the members, one by one
	answered bool
	answer   exchange.Ranked
}

// rankMember is a track, or a subscription without one.
type rankMember struct {
	track trackRef
	sub   subRef
}

func (h *Hub) newRanking(topic string, p *policy.Policy, messages []*exchange.Message) *ranking {
	h.serials++
	r := &ranking{serial: h.serials, topic: topic, policy: p, messages: messages, plain: true}
	for i, m := range messages {
		r.bytes += m.Size()
		r.plain = r.plain && m.ExpiresAt == 0 && m.Seq == messages[0].Seq+uint64(i)
	}
	h.looked(len(messages))
	return r
}

// add a member; places nil: it may get all messages.
func (r *ranking) add(m rankMember, c *conn, topK uint32, places []uint32) {
	r.members = append(r.members, m)
	r.request = append(r.request, exchange.RankMember{Profile: c.profile, TopK: topK, Places: places})
}

// rankNow asks for a ranking that has its members.
func (h *Hub) rankNow(r *ranking) {
	if len(r.members) == 0 {
		return
	}
	h.rankings[r.serial] = r
	h.gathered += r.bytes
	h.mesh.Rank(&exchange.Ranking{Loop: h.cfg.Loop, Serial: r.serial, Topic: r.topic, Policy: r.policy, Messages: r.messages, Members: r.request})
}

// rankedEvent takes the answer up, member by member.
func (h *Hub) rankedEvent(e exchange.Ranked) {
	r := h.rankings[e.Serial]
	if r == nil {
		h.stats.StaleEvents++
		return
	}
	delete(h.rankings, e.Serial)
	h.gathered -= r.bytes
	if e.Err == nil && len(e.Members) != len(r.members) {
		e.Err = code.New(wirev1.Code_CODE_INTERNAL, "a ranking has another number of members")
	}
	r.answered, r.answer = true, e
	h.jobs.push(&answering{r: r})
}

type answering struct {
	r  *ranking
	at int
}

func (j *answering) step(h *Hub) bool {
	r := j.r
	for n := 0; n < fanSlice && j.at < len(r.members); n += 1 + h.toll() {
		i := j.at
		j.at++
		switch t, s := r.members[i].track.get(), r.members[i].sub.get(); {
		case t != nil && t.rank != nil && t.rank.asked == r:
			h.run(t)
		case t != nil && r.rng == nil:
			n += h.giveRanked(r, i, t.c, t, nil, wirev1.Overflow(t.overflow))
		case s != nil && s.active:
			n += h.giveRanked(r, i, s.c, nil, h.sharing(s, r.messages[0].Topic), wirev1.Overflow(s.overflow))
		}
	}
	return j.at == len(r.members)
}

// giveRanked queues ephemeral messages of a ranking for one of its members, and says how many.
func (h *Hub) giveRanked(r *ranking, member int, c *conn, t *track, subs []*sub, overflow wirev1.Overflow) (n int) {
	places := r.request[member].Places
	wanted := len(places)
	if places == nil {
		wanted = len(r.messages)
	}
	if r.answer.Err != nil {
		h.stats.Unranked.add(code.Of(r.answer.Err), uint64(wanted))
		for i := range wanted {
			h.ephemeral(c, t, subs, overflow, r.messages[placeAt(places, i)], sendq.Unranked)
		}
		return wanted
	}
	answer := &r.answer.Members[member]
	for _, b := range answer.Best {
		h.ephemeral(c, t, subs, overflow, r.messages[b.Place], sendq.Scored(b.Score))
	}
	h.stats.Drops.add(wirev1.Code_CODE_FILTERED, uint64(len(answer.Filtered)))
	if r.skipsRest() {
		h.stats.Drops.add(wirev1.Code_CODE_RANKED_OUT, uint64(wanted-len(answer.Best)-len(answer.Filtered)))
		return len(answer.Best)
	}
	h.taken = slices.Grow(h.taken[:0], len(r.messages))[:len(r.messages)]
	clear(h.taken)
	for _, b := range answer.Best {
		h.taken[b.Place] = true
	}
	for _, place := range answer.Filtered {
		h.taken[place] = true
	}
	for i := range wanted {
		if place := placeAt(places, i); !h.taken[place] {
			h.ephemeral(c, t, subs, overflow, r.messages[place], 0)
		}
	}
	return wanted
}

// placeAt is the i-th of places, where nil is all.
func placeAt(places []uint32, i int) int {
	if places == nil {
		return i
	}
	return int(places[i])
}

func (r *ranking) skipsRest() bool {
	return r.policy.Rank.GetRest() == pushmeshv1.RankPolicy_REST_SKIP
}
