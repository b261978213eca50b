package delivery

import (
	"slices"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/budget"
	"github.com/pushmesh/pushmesh/services/edge/internal/ranking/ranked"
)

const (
	// candidatesShare is the part of the loop's part of the queue budget that candidates may take
	// beside the queues, while they gather or are ranked: one in so many bytes.
	candidatesShare = 8
	// rankReadBytes are asked for at a time by a ranked subscription that is behind.
	rankReadBytes = 1 << 20
)

// rankedDelivery hands on what package ranked decides: which candidates are ranked for whom, and in
// which order a track gets them, as far as windows and queue have room. Between its rankings a
// track is behind, and reads what it does not find in a window from the log: so nothing that
// happens to a ranking loses a message.
type rankedDelivery struct {
	hub  *Hub
	room *ranked.Room[state.RankMember]
	seen rankedTrack // scratch
}

func newRanked(h *Hub, share *budget.Share) rankedDelivery {
	d := rankedDelivery{hub: h, seen: rankedTrack{hub: h}}
	d.room = ranked.New(ranked.Config[state.RankMember]{
		Loop: h.cfg.Loop, Delivery: rankPort{h}, Mesh: h.mesh, Most: int(share.Even()) / candidatesShare, Jobs: &h.rooms.jobs, Cost: &h.cost,
	})
	return d
}

// subscribe makes a new subscription one that is ranked.
func (d *rankedDelivery) subscribe(s *state.Subscription, topK uint32) {
	d.hub.subs.More(s).TopK = topK
	if s.Kind == state.KindPlain {
		s.Kind = state.KindOwn
	}
}

// ranks reports whether the messages of a ranked track are ranked: its namespace may say otherwise
// by now.
func (d *rankedDelivery) ranks(t *state.Track) bool {
	return t.Rank.TopK > 0 && d.hub.topics.Policy(t.Topic).Rank != nil
}

// await has a track that is behind wait for the window of its topic.
func (d *rankedDelivery) await(t *state.Track) {
	if !t.Reading {
		t.Reading = true
		d.room.Await(t.Topic.Name(), d.hub.topics.Policy(t.Topic), t.Epoch, d.hub.fan.ms, state.RankMember{Track: t.Ref()})
	}
}

// offer has a track wait for the window that the durable messages in hand are in.
func (d *rankedDelivery) offer(t *state.Track) {
	f, c := &d.hub.fan, t.Conn
	if c.Phase != state.Open || c.Draining || t.Epoch != f.ms[0].Epoch && !d.hub.epochOf(t, f.ms[0]) || f.ms[len(f.ms)-1].Seq <= t.Pos {
		return
	}
	switch {
	case !t.Behind && !d.ranks(t):
		d.hub.fallBehind(t)
	case !t.Behind:
		t.Behind = true
		d.await(t)
	case t.Rank.Level && !d.room.Gathers(t.Topic.Name()) && d.ranks(t):
		// it will be there in time for that
		d.room.Begin(t.Topic.Name(), d.hub.topics.Policy(t.Topic), t.Epoch, f.ms)
	}
}

// offerEphemeral makes a track, or else a subscription without one, a member of the ephemeral
// candidates in hand. Where there is no room for more, or the namespace does not rank, they are
// queued at once.
func (d *rankedDelivery) offerEphemeral(c *state.Conn, t *state.Track, s *state.Subscription, overflow wirev1.Overflow) {
	f := &d.hub.fan
	if c.Phase != state.Open || c.Draining {
		return
	}
	var m state.RankMember
	var joined *uint64
	switch {
	case t == nil:
		m.Sub, joined = s.Handle(), &s.SubscriptionMore.Joined
	case t.Rank.TopK == 0:
		f.ephemeralRun(c, t, s, overflow, 0)
		return
	default:
		m.Track, joined = t.Ref(), &t.Rank.Joined
	}
	if mark, joins := d.room.Join(f.ms, d.hub.cfg.PolicyFor, m, joined); !joins {
		f.ephemeralRun(c, t, s, overflow, mark)
	}
}

// rankPort is the hub as package ranked sees it.
type rankPort struct{ h *Hub }

// Arrived implements ranked.Delivery.
func (p rankPort) Arrived(e *exchange.Range, waiting []state.RankMember) {
	p.h.jobs.Push(&arrival{e: e, members: waiting})
}

// GoOn implements ranked.Delivery.
func (p rankPort) GoOn(m state.RankMember, k *ranked.Ranking[state.RankMember]) {
	if t := m.Track.Get(); t != nil && t.Rank != nil && t.Rank.Awaits(k) {
		p.h.replay.enqueue(t)
	}
}

// Interest implements ranked.Delivery.
func (p rankPort) Interest(m state.RankMember, topic string) (i ranked.Interest, ok bool) {
	if t := m.Track.Get(); t != nil {
		i = ranked.Interest{Profile: t.Conn.Profile, TopK: t.Rank.TopK}
		if t.First.Picky() || len(t.Also) > 0 {
			i.Wants = func(x *exchange.Message) bool { return p.h.tracks.Judge(t, x) == state.Passes }
		}
		return i, true
	}
	s := m.Sub.Get()
	if s == nil || !s.Active {
		return i, false
	}
	subs := p.h.fan.sharing(s, topic)
	i = ranked.Interest{Profile: s.Conn.Profile, TopK: state.MostOf(subs)}
	if s.Picky() || len(subs) > 1 {
		i.Wants = func(x *exchange.Message) bool { return state.WantedBy(subs, x) }
	}
	return i, true
}

// Send implements ranked.Delivery.
func (p rankPort) Send(m state.RankMember, picks []ranked.Pick) (ok bool) {
	t, s := m.Track.Get(), m.Sub.Get()
	var c *state.Conn
	var subs []*state.Subscription
	var overflow wirev1.Overflow
	switch {
	case t != nil:
		c, overflow = t.Conn, wirev1.Overflow(t.Overflow)
	case s != nil && s.Active:
		c, overflow = s.Conn, wirev1.Overflow(s.Overflow)
		if len(picks) > 0 {
			subs = p.h.fan.sharing(s, picks[0].Message.Topic)
		}
	default:
		return false
	}
	for _, pick := range picks {
		p.h.fan.ephemeral(c, t, subs, overflow, pick.Message, pick.Mark)
	}
	return true
}

// Dropped implements ranked.Delivery.
func (p rankPort) Dropped(why wirev1.Code, n int) { p.h.stats.Drops.Add(why, uint64(n)) }

// Unranked implements ranked.Delivery.
func (p rankPort) Unranked(why wirev1.Code, n int) { p.h.stats.Unranked.Add(why, uint64(n)) }

// rankedTrack is a track as package ranked sees it.
type rankedTrack struct {
	hub *Hub
	t   *state.Track
}

// of is good until it is asked for again.
func (r *rankedTrack) of(t *state.Track) *rankedTrack {
	r.t = t
	return r
}

// Outcome implements ranked.Track.
func (r *rankedTrack) Outcome(m *exchange.Message) ranked.Outcome {
	t := r.t
	switch {
	case t.Cursor != nil && t.Cursor.Has(m.Seq), t.Win != nil && t.Win.Find(m.Seq) != nil:
		return ranked.Had
	case r.hub.hasExpired(m):
		return ranked.Expired
	case r.hub.tracks.Judge(t, m) == state.Filtered:
		return ranked.Filtered
	}
	return ranked.Wanted
}

// WantsAll implements ranked.Track.
func (r *rankedTrack) WantsAll(from, to uint64) bool {
	t := r.t
	if t.First.Picky() || len(t.Also) > 0 {
		return false
	}
	return t.Cursor == nil || t.Cursor.Missing(from, to) == to-from+1
}

// Gap implements ranked.Track.
func (r *rankedTrack) Gap(from, to uint64, why wirev1.Code) { r.hub.gaps.addGap(r.t, from, to, why) }

// Expire implements ranked.Track.
func (r *rankedTrack) Expire(m *exchange.Message) { r.hub.gaps.expired(r.t, m) }

// arrived has a ranked track wait for the ranking of a range that has come, if that has
// candidates for it, and is not what was missing of an order.
func (d *rankedDelivery) arrived(t *state.Track, j *arrival) (waits bool) {
	r := t.Rank
	if _, ordered := r.Order.Next(); ordered || len(j.e.Messages) == 0 || !d.ranks(t) || d.unjudgedIn(t, j.e) {
		return false
	}
	if j.ranking == nil {
		j.ranking = d.room.CandidatesOf(j.e, d.hub.topics.Policy(t.Topic))
	}
	return d.room.Ask(j.ranking, r, state.RankMember{Track: t.Ref()}, t.Conn.Profile, t.Pos, d.seen.of(t))
}

// unjudgedIn reports whether the range was asked for before a content filter was known.
func (d *rankedDelivery) unjudgedIn(t *state.Track, e *exchange.Range) bool {
	if !t.First.Picky() && len(t.Also) == 0 {
		return false
	}
	d.hub.addCost(len(e.Messages))
	return slices.ContainsFunc(e.Messages, func(m *exchange.Message) bool { return m.Seq > t.Pos && d.hub.tracks.Judge(t, m) == state.Unjudged })
}

// goOn has a ranked track go on, and says how much it did.
func (d *rankedDelivery) goOn(t *state.Track) (done int) {
	r := t.Rank
	switch r.Step(t.Range != nil) {
	case ranked.Wait:
		return 0
	case ranked.Read:
		d.hub.replay.ask(t)
		return 0
	case ranked.TakeUp:
		l, e := r.TakeUp()
		d.hub.replay.holdRange(t, e)
		t.Pos = d.room.LineUp(l, r, t.Pos, d.seen.of(t))
	case ranked.LineUp:
		if d.unjudgedIn(t, t.Range) {
			d.hub.replay.releaseRange(t)
			d.hub.replay.readLater(t)
			d.hub.replay.enqueue(t)
			return 1
		}
		t.Pos = d.room.LineUp(ranked.Unranked[state.RankMember](t.Range.Messages), r, t.Pos, d.seen.of(t))
	case ranked.HandOn:
	}
	return 1 + d.handOn(t)
}

// handOn hands on some of a track's order, and says how many.
func (d *rankedDelivery) handOn(t *state.Track) (done int) {
	o := &t.Rank.Order
	for most := d.hub.replay.turnOf(t.Conn, t.ACK); done < most; done++ {
		next, ok := o.Next()
		if !ok {
			d.ends(t)
			return done
		}
		m, elsewhere := ranked.Find(t.Range, next.Seq)
		switch {
		case elsewhere:
			d.hub.replay.releaseRange(t)
			d.hub.replay.enqueue(t)
			return done
		case m == nil:
			d.hub.gaps.addGap(t, next.Seq, next.Seq, wirev1.Code_CODE_RETENTION)
			o.Pop()
			continue
		}
		switch d.seen.of(t).Outcome(m) {
		case ranked.Had:
			o.Pop()
			continue
		case ranked.Expired:
			d.hub.gaps.expired(t, m)
			o.Pop()
			continue
		case ranked.Wanted, ranked.Filtered:
		}
		why := wirev1.Code_CODE_QUEUE_FULL
		if d.hub.drained(t.Conn) {
			why = d.hub.deliver(t, m, next.Mark)
		}
		if why != wirev1.Code_CODE_OK {
			d.hub.replay.putOff(t, why)
			return done
		}
		o.Pop()
	}
	d.hub.replay.enqueue(t)
	return done
}

// ends decides how it goes on behind an order.
func (d *rankedDelivery) ends(t *state.Track) {
	if t.Range == nil {
		d.hub.replay.enqueue(t)
		return
	}
	d.hub.replay.rangeEnds(t)
}
