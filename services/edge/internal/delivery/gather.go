package delivery

import (
	"math"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/ranking/ranked"
)

const (
	// gatherShare is the part of the loop's queues that candidates may take which gather or are
	// ranked: one in so many bytes.
	gatherShare = 8
	// rankReadBytes are asked for at a time by a ranked subscription that is behind.
	rankReadBytes = 1 << 20
)

// begin begins the window of a topic with the messages in hand, if they are of it.
func (d *rankedDelivery) begin(topic string, p *policy.Policy, epoch uint64) *ranked.Window[rankMember] {
	w := d.room.Begin(topic, p, epoch)
	if f := &d.hub.fan; f.active() && f.ms[0].Topic == topic && f.ms[0].Epoch == epoch {
		d.room.Add(w, f.ms)
	}
	return w
}

// gatherMore has the messages in hand gather with those of their topic that came before. A window
// that has no room for them ends.
func (d *rankedDelivery) gatherMore() {
	ms := d.hub.fan.ms
	switch w := d.room.Window(ms[0].Topic); {
	case w == nil:
	case w.Takes(ms):
		d.room.Add(w, ms)
	default:
		d.room.End(w)
		d.ended(w)
	}
}

// await has a track that is behind wait for the window of its topic.
func (d *rankedDelivery) await(t *track) {
	w := d.room.Window(t.topic.name)
	if w == nil {
		w = d.begin(t.topic.name, d.hub.topics.policy(t.topic), t.epoch)
	}
	if !t.reading {
		t.reading = true
		w.Waiting = append(w.Waiting, rankMember{track: t.ref()})
	}
}

// offer has a track wait for the window that the durable messages in hand are in.
func (d *rankedDelivery) offer(t *track) {
	f, c := &d.hub.fan, t.c
	if c.state != stateOpen || c.draining || t.epoch != f.ms[0].Epoch && !d.hub.epochOf(t, f.ms[0]) || f.ms[len(f.ms)-1].Seq <= t.pos {
		return
	}
	switch {
	case !t.behind && !d.ranks(t):
		d.hub.fallBehind(t)
	case !t.behind:
		t.behind = true
		d.await(t)
	case t.rank.level && d.room.Window(t.topic.name) == nil && d.ranks(t):
		// it will be there in time for that
		d.begin(t.topic.name, d.hub.topics.policy(t.topic), t.epoch)
	}
}

// offerEphemeral makes a track, or else a subscription without one, a member of the ephemeral
// candidates in hand. Where there is no room for more, or the namespace does not rank, they are
// queued at once.
func (d *rankedDelivery) offerEphemeral(c *conn, t *track, s *sub, overflow wirev1.Overflow) {
	f := &d.hub.fan
	if c.state != stateOpen || c.draining {
		return
	}
	w := d.room.Window(f.ms[0].Topic)
	if t != nil && t.rank.topK == 0 {
		f.ephemeralRun(c, t, s, overflow, 0)
		return
	}
	if w == nil {
		p := d.hub.cfg.PolicyFor(f.ms[0].Topic)
		switch {
		case p.Rank == nil:
			f.ephemeralRun(c, t, s, overflow, 0)
			return
		case d.room.Full():
			d.hub.stats.Unranked.add(wirev1.Code_CODE_MEMORY_BUDGET, uint64(len(f.ms)))
			f.ephemeralRun(c, t, s, overflow, sendq.Unranked)
			return
		}
		w = d.begin(f.ms[0].Topic, p, 0)
	}
	m := rankMember{}
	if t != nil {
		if t.rank.gathered == w.Serial {
			return
		}
		t.rank.gathered, m.track = w.Serial, t.ref()
	} else {
		if s.gathered == w.Serial {
			return
		}
		s.gathered, m.sub = w.Serial, s.handle()
	}
	w.Members = append(w.Members, ranked.Gathering[rankMember]{Member: m, From: w.Fresh})
}

// ended has what gathered in a window that has ended ranked for those who wait for it.
func (d *rankedDelivery) ended(w *ranked.Window[rankMember]) {
	switch {
	case len(w.Waiting) > 0:
		e := &exchange.Range{Topic: w.Topic, From: math.MaxUint64, Epoch: w.Epoch, Messages: w.Messages}
		if n := len(w.Messages); n > 0 {
			e.From, e.Oldest, e.Head = w.Messages[0].Seq, w.Messages[0].Seq, w.Messages[n-1].Seq
		}
		d.hub.jobs.Push(&arrival{e: e, members: w.Waiting})
	case len(w.Members) > 0:
		for at := 0; at < len(w.Messages); at += w.Policy.RankCandidates() {
			d.hub.jobs.Push(&closing{w: w, at: at})
		}
	}
}

// closing makes a ranking of ephemeral candidates, or of some of them, member by member.
type closing struct {
	w  *ranked.Window[rankMember]
	at int // of the messages
	to int // of the members
	k  *ranked.Ranking[rankMember]
}

func (j *closing) step(h *Hub) bool {
	w := j.w
	if j.k == nil {
		j.k = h.ranked.room.Candidates(w.Topic, w.Policy, w.Messages[j.at:min(j.at+w.Policy.RankCandidates(), len(w.Messages))])
	}
	for n := 0; n < fanSlice && j.to < len(w.Members); n += 1 + h.toll() {
		m, from := w.Members[j.to].Member, w.Members[j.to].From-j.at
		j.to++
		if t := m.track.get(); t != nil {
			var wants func(*exchange.Message) bool
			if t.first.filtered || len(t.also) > 0 {
				wants = func(x *exchange.Message) bool { return h.judge(t, x) == passes }
			}
			h.ranked.addGathered(j.k, m, t.c, t.rank.topK, from, wants)
		} else if s := m.sub.get(); s != nil && s.active {
			subs := h.fan.sharing(s, w.Topic)
			var wants func(*exchange.Message) bool
			if s.filtered || len(subs) > 1 {
				wants = func(x *exchange.Message) bool { return wantedBy(subs, x) }
			}
			h.ranked.addGathered(j.k, m, s.c, mostOf(subs), from, wants)
		}
	}
	if j.to < len(w.Members) {
		return false
	}
	h.ranked.room.Request(j.k)
	return true
}

// addGathered adds a member that gets the messages from one on which it wants; wants nil: all.
func (d *rankedDelivery) addGathered(k *ranked.Ranking[rankMember], m rankMember, c *conn, topK uint32, from int, wants func(*exchange.Message) bool) {
	if wants == nil && from <= 0 {
		k.Add(m, c.profile, max(topK, 1), nil)
		return
	}
	var places []uint32
	for i := max(from, 0); i < len(k.Messages); i++ {
		if wants == nil || wants(k.Messages[i]) {
			places = append(places, uint32(i))
		} else {
			d.hub.stats.Drops.add(wirev1.Code_CODE_FILTERED, 1)
		}
	}
	d.hub.looked(len(k.Messages))
	if len(places) > 0 {
		k.Add(m, c.profile, max(topK, 1), places)
	}
}
