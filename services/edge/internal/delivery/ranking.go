package delivery

import (
	"slices"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/ranking/ranked"
)

// answered takes the answer up, member by member.
func (d *rankedDelivery) answered(e exchange.Ranked) {
	k := d.room.Answered(e)
	if k == nil {
		d.hub.stats.StaleEvents++
		return
	}
	d.hub.jobs.Push(&answering{k: k})
}

type answering struct {
	k  *ranked.Ranking[rankMember]
	at int
}

func (j *answering) step(h *Hub) bool {
	k := j.k
	for n := 0; n < fanSlice && j.at < len(k.Members); n += 1 + h.toll() {
		i := j.at
		j.at++
		switch t, s := k.Members[i].track.get(), k.Members[i].sub.get(); {
		case t != nil && t.rank != nil && t.rank.asked == k:
			h.replay.enqueue(t)
		case t != nil && k.Range == nil:
			n += h.ranked.give(k, i, t.c, t, nil, wirev1.Overflow(t.overflow))
		case s != nil && s.active:
			n += h.ranked.give(k, i, s.c, nil, h.fan.sharing(s, k.Messages[0].Topic), wirev1.Overflow(s.overflow))
		}
	}
	return j.at == len(k.Members)
}

// give queues ephemeral messages of a ranking for one of its members, and says how many.
func (d *rankedDelivery) give(k *ranked.Ranking[rankMember], member int, c *conn, t *track, subs []*sub, overflow wirev1.Overflow) (n int) {
	wanted := k.Wanted(member)
	if k.Answer.Err != nil {
		d.hub.stats.Unranked.add(code.Of(k.Answer.Err), uint64(wanted))
		for i := range wanted {
			d.hub.fan.ephemeral(c, t, subs, overflow, k.Messages[k.Place(member, i)], sendq.Unranked)
		}
		return wanted
	}
	answer := &k.Answer.Members[member]
	for _, b := range answer.Best {
		d.hub.fan.ephemeral(c, t, subs, overflow, k.Messages[b.Place], sendq.Scored(b.Score))
	}
	d.hub.stats.Drops.add(wirev1.Code_CODE_FILTERED, uint64(len(answer.Filtered)))
	if k.SkipsRest() {
		d.hub.stats.Drops.add(wirev1.Code_CODE_RANKED_OUT, uint64(wanted-len(answer.Best)-len(answer.Filtered)))
		return len(answer.Best)
	}
	d.taken = slices.Grow(d.taken[:0], len(k.Messages))[:len(k.Messages)]
	clear(d.taken)
	for _, b := range answer.Best {
		d.taken[b.Place] = true
	}
	for _, place := range answer.Filtered {
		d.taken[place] = true
	}
	for i := range wanted {
		if place := k.Place(member, i); !d.taken[place] {
			d.hub.fan.ephemeral(c, t, subs, overflow, k.Messages[place], 0)
		}
	}
	return wanted
}
