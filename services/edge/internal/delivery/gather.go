package delivery

import (
	"math"
	"strings"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

const (
	// candidateBytes of messages end a window before its time.
	candidateBytes = 1 << 20
	// gatherShare is the part of the loop's queues that candidates may take which gather or are
	// ranked: one in so many bytes.
	gatherShare = 8
	// rankReadBytes are asked for at a time by a ranked subscription that is behind.
	rankReadBytes = 1 << 20
)

// gather is the candidates of a topic that have come since a window began. Durable ones follow each
// other without holes; tracks wait for them, and read what is not there from the log. Of ephemeral
// ones it has all that there will be.
type gather struct {
	serial   uint64
	topic    string
	policy   *policy.Policy
	epoch    uint64 // 0: ephemeral
	messages []*exchange.Message
	bytes    int
	fresh    int        // of messages: where those in hand begin
	waiting  []trackRef // for durable messages
	members  []gathering
}

// gathering is a subscription that ephemeral candidates are for, from one of them on.
type gathering struct {
	track trackRef
	sub   subRef // where it has no track
	from  int
}

// newGather begins a window with the messages in hand, if they are of its topic.
func (d *rankedDelivery) newGather(topic string, p *policy.Policy, epoch uint64) *gather {
	d.serials++
	g := &gather{serial: d.serials, topic: strings.Clone(topic), policy: p, epoch: epoch}
	d.gathers[g.topic], d.bySerial[g.serial] = g, g
	d.hub.mesh.Gather(exchange.Gathering{Loop: d.hub.cfg.Loop, Serial: g.serial, Window: p.RankWindow()})
	if f := &d.hub.fan; f.active() && f.ms[0].Topic == g.topic && f.ms[0].Epoch == epoch {
		d.addTo(g, f.ms)
	}
	return g
}

// gatherMore has the messages in hand gather with those of their topic that came before. A window
// that has no room for them ends.
func (d *rankedDelivery) gatherMore() {
	if len(d.gathers) == 0 {
		return
	}
	ms := d.hub.fan.ms
	g := d.gathers[ms[0].Topic]
	if g == nil {
		return
	}
	if n := len(g.messages); n > 0 && (n+len(ms) > g.policy.RankCandidates() || g.bytes >= candidateBytes || ms[0].Seq == 0 != (g.epoch == 0)) {
		d.endWindow(g)
		return
	}
	d.addTo(g, ms)
}

func (d *rankedDelivery) addTo(g *gather, ms []*exchange.Message) {
	if n := len(g.messages); g.epoch != ms[0].Epoch || n > 0 && g.epoch > 0 && g.messages[n-1].Seq+1 != ms[0].Seq {
		d.bytes -= g.bytes
		g.epoch, g.messages, g.bytes = ms[0].Epoch, nil, 0
	}
	g.fresh = len(g.messages)
	if g.epoch > 0 && d.full() {
		return // who waits reads the log
	}
	g.messages = append(g.messages, ms...)
	for _, m := range ms {
		g.bytes += m.Size()
		d.bytes += m.Size()
	}
}

// full says that candidates take as much memory as they may.
func (d *rankedDelivery) full() bool { return d.bytes > d.hub.lim.QueueMemory/gatherShare }

// await has a track that is behind wait for the window of its topic.
func (d *rankedDelivery) await(t *track) {
	g := d.gathers[t.topic.name]
	if g == nil {
		g = d.newGather(t.topic.name, d.hub.policy(t.topic), t.epoch)
	}
	if !t.reading {
		t.reading = true
		g.waiting = append(g.waiting, t.ref())
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
	case t.rank.level && d.gathers[t.topic.name] == nil && d.ranks(t):
		d.newGather(t.topic.name, d.hub.policy(t.topic), t.epoch) // it will be there in time for that
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
	g := d.gathers[f.ms[0].Topic]
	if t != nil && t.rank.topK == 0 {
		d.hub.fan.ephemeralRun(c, t, s, overflow, 0)
		return
	}
	if g == nil {
		p := d.hub.cfg.PolicyFor(f.ms[0].Topic)
		switch {
		case p.Rank == nil:
			d.hub.fan.ephemeralRun(c, t, s, overflow, 0)
			return
		case d.full():
			d.hub.stats.Unranked.add(wirev1.Code_CODE_MEMORY_BUDGET, uint64(len(f.ms)))
			d.hub.fan.ephemeralRun(c, t, s, overflow, sendq.Unranked)
			return
		}
		g = d.newGather(f.ms[0].Topic, p, 0)
	}
	m := gathering{from: g.fresh}
	if t != nil {
		if t.rank.gathered == g.serial {
			return
		}
		t.rank.gathered, m.track = g.serial, t.ref()
	} else {
		if s.gathered == g.serial {
			return
		}
		s.gathered, m.sub = g.serial, s.handle()
	}
	g.members = append(g.members, m)
}

// endWindow has what gathered ranked for those who wait for it.
func (d *rankedDelivery) endWindow(g *gather) {
	delete(d.gathers, g.topic)
	delete(d.bySerial, g.serial)
	d.bytes -= g.bytes
	switch {
	case len(g.waiting) > 0:
		e := &exchange.Range{Topic: g.topic, From: math.MaxUint64, Epoch: g.epoch, Messages: g.messages}
		if n := len(g.messages); n > 0 {
			e.From, e.Oldest, e.Head = g.messages[0].Seq, g.messages[0].Seq, g.messages[n-1].Seq
		}
		d.hub.jobs.push(&arrival{e: e, waiting: g.waiting})
	case len(g.members) > 0:
		for at := 0; at < len(g.messages); at += g.policy.RankCandidates() {
			d.hub.jobs.push(&closing{g: g, at: at})
		}
	}
}

// closing makes a ranking of ephemeral candidates, or of some of them, member by member.
type closing struct {
	g  *gather
	at int // of the messages
	to int // of the members
	r  *ranking
}

func (j *closing) step(h *Hub) bool {
	g := j.g
	if j.r == nil {
		j.r = h.ranked.newRanking(g.topic, g.policy, g.messages[j.at:min(j.at+g.policy.RankCandidates(), len(g.messages))])
	}
	for n := 0; n < fanSlice && j.to < len(g.members); n += 1 + h.toll() {
		m := g.members[j.to]
		j.to++
		if t := m.track.get(); t != nil {
			var wants func(*exchange.Message) bool
			if t.first.filtered || len(t.also) > 0 {
				wants = func(x *exchange.Message) bool { return h.judge(t, x) == passes }
			}
			h.ranked.addGathered(j.r, rankMember{track: m.track}, t.c, t.rank.topK, m.from-j.at, wants)
		} else if s := m.sub.get(); s != nil && s.active {
			subs := h.fan.sharing(s, g.topic)
			var wants func(*exchange.Message) bool
			if s.filtered || len(subs) > 1 {
				wants = func(x *exchange.Message) bool { return wantedBy(subs, x) }
			}
			h.ranked.addGathered(j.r, rankMember{sub: m.sub}, s.c, mostOf(subs), m.from-j.at, wants)
		}
	}
	if j.to < len(g.members) {
		return false
	}
	h.ranked.request(j.r)
	return true
}

// addGathered adds a member that gets the messages from one on which it wants; wants nil: all.
func (d *rankedDelivery) addGathered(r *ranking, m rankMember, c *conn, topK uint32, from int, wants func(*exchange.Message) bool) {
	if wants == nil && from <= 0 {
		r.add(m, c, max(topK, 1), nil)
		return
	}
	var places []uint32
	for i := max(from, 0); i < len(r.messages); i++ {
		if wants == nil || wants(r.messages[i]) {
			places = append(places, uint32(i))
		} else {
			d.hub.stats.Drops.add(wirev1.Code_CODE_FILTERED, 1)
		}
	}
	d.hub.looked(len(r.messages))
	if len(places) > 0 {
		r.add(m, c, max(topK, 1), places)
	}
}
