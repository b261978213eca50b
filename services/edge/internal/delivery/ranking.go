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

func (d *rankedDelivery) newRanking(topic string, p *policy.Policy, messages []*exchange.Message) *ranking {
	d.serials++
	r := &ranking{serial: d.serials, topic: topic, policy: p, messages: messages, plain: true}
	for i, m := range messages {
		r.bytes += m.Size()
		r.plain = r.plain && m.ExpiresAt == 0 && m.Seq == messages[0].Seq+uint64(i)
	}
	d.hub.looked(len(messages))
	return r
}

// add a member; places nil: it may get all messages.
func (r *ranking) add(m rankMember, c *conn, topK uint32, places []uint32) {
	r.members = append(r.members, m)
	r.request = append(r.request, exchange.RankMember{Profile: c.profile, TopK: topK, Places: places})
}

// request asks for a ranking that has its members.
func (d *rankedDelivery) request(r *ranking) {
	if len(r.members) == 0 {
		return
	}
	d.rankings[r.serial] = r
	d.bytes += r.bytes
	d.hub.mesh.Rank(&exchange.Ranking{Loop: d.hub.cfg.Loop, Serial: r.serial, Topic: r.topic, Policy: r.policy, Messages: r.messages, Members: r.request})
}

// answered takes the answer up, member by member.
func (d *rankedDelivery) answered(e exchange.Ranked) {
	r := d.rankings[e.Serial]
	if r == nil {
		d.hub.stats.StaleEvents++
		return
	}
	delete(d.rankings, e.Serial)
	d.bytes -= r.bytes
	if e.Err == nil && len(e.Members) != len(r.members) {
		e.Err = code.New(wirev1.Code_CODE_INTERNAL, "a ranking has another number of members")
	}
	r.answered, r.answer = true, e
	d.hub.jobs.push(&answering{r: r})
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
			h.replay.enqueue(t)
		case t != nil && r.rng == nil:
			n += h.ranked.give(r, i, t.c, t, nil, wirev1.Overflow(t.overflow))
		case s != nil && s.active:
			n += h.ranked.give(r, i, s.c, nil, h.fan.sharing(s, r.messages[0].Topic), wirev1.Overflow(s.overflow))
		}
	}
	return j.at == len(r.members)
}

// give queues ephemeral messages of a ranking for one of its members, and says how many.
func (d *rankedDelivery) give(r *ranking, member int, c *conn, t *track, subs []*sub, overflow wirev1.Overflow) (n int) {
	places := r.request[member].Places
	wanted := len(places)
	if places == nil {
		wanted = len(r.messages)
	}
	if r.answer.Err != nil {
		d.hub.stats.Unranked.add(code.Of(r.answer.Err), uint64(wanted))
		for i := range wanted {
			d.hub.fan.ephemeral(c, t, subs, overflow, r.messages[placeAt(places, i)], sendq.Unranked)
		}
		return wanted
	}
	answer := &r.answer.Members[member]
	for _, b := range answer.Best {
		d.hub.fan.ephemeral(c, t, subs, overflow, r.messages[b.Place], sendq.Scored(b.Score))
	}
	d.hub.stats.Drops.add(wirev1.Code_CODE_FILTERED, uint64(len(answer.Filtered)))
	if r.skipsRest() {
		d.hub.stats.Drops.add(wirev1.Code_CODE_RANKED_OUT, uint64(wanted-len(answer.Best)-len(answer.Filtered)))
		return len(answer.Best)
	}
	d.taken = slices.Grow(d.taken[:0], len(r.messages))[:len(r.messages)]
	clear(d.taken)
	for _, b := range answer.Best {
		d.taken[b.Place] = true
	}
	for _, place := range answer.Filtered {
		d.taken[place] = true
	}
	for i := range wanted {
		if place := placeAt(places, i); !d.taken[place] {
			d.hub.fan.ephemeral(c, t, subs, overflow, r.messages[place], 0)
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
