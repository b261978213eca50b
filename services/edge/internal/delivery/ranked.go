package delivery

import (
	"slices"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/ranking/ranked"
)

// arrived has a ranked track wait for the ranking of a range that has come, if that has
// candidates for it, and is not what was missing of an order.
func (d *rankedDelivery) arrived(t *track, j *arrival) (waits bool) {
	r := t.rank
	if _, left := r.order.Next(); left || len(j.e.Messages) == 0 || !d.ranks(t) || d.unjudgedIn(t, j.e) {
		return false
	}
	if j.ranking == nil {
		p := d.hub.topics.policy(t.topic)
		j.ranking = d.room.Candidates(j.e.Topic, p, j.e.Messages[:min(len(j.e.Messages), p.RankCandidates())])
		j.ranking.Range = j.e
	}
	messages := j.ranking.Messages
	var places []uint32
	if !d.wantsAll(t, j.ranking) {
		for i, m := range messages {
			if m.Seq > t.pos && d.outcome(t, m) == messageWanted {
				places = append(places, uint32(i))
			}
		}
		d.hub.looked(len(messages))
		if len(places) == 0 {
			return false
		}
	}
	r.level = messages[len(messages)-1].Seq == j.e.Head
	r.asked, r.place = j.ranking, len(j.ranking.Members)
	j.ranking.Add(rankMember{track: t.ref()}, t.c.profile, r.topK, places)
	return true
}

// wantsAll says that a track wants every message of a ranking, without a look at each.
func (d *rankedDelivery) wantsAll(t *track, k *ranked.Ranking[rankMember]) bool {
	ms := k.Messages
	if !k.Plain || t.pos+1 != ms[0].Seq || t.first.filtered || len(t.also) > 0 {
		return false
	}
	last := ms[len(ms)-1].Seq
	return t.cur == nil || t.cur.Missing(ms[0].Seq, last) == uint64(len(ms))
}

// outcome is what becomes of a message that a ranked track has come to.
type outcome uint8

const (
	messageWanted  outcome = iota
	messageSettled         // or with the client
	messageExpired
	messageFiltered
)

// outcome of a message.
func (d *rankedDelivery) outcome(t *track, m *exchange.Message) outcome {
	switch {
	case t.cur != nil && t.cur.Has(m.Seq), t.win != nil && t.win.Find(m.Seq) != nil:
		return messageSettled
	case m.ExpiresAt != 0 && m.ExpiresAt <= d.hub.wall:
		return messageExpired
	case d.hub.judge(t, m) == filtered:
		return messageFiltered
	}
	return messageWanted
}

// goOn has a ranked track go on, and says how much it did.
func (d *rankedDelivery) goOn(t *track) (done int) {
	r := t.rank
	_, left := r.order.Next()
	switch {
	case r.asked != nil && !r.asked.Answered:
		return 0
	case r.asked != nil:
		k := r.asked
		r.asked = nil
		d.hub.replay.holdRange(t, k.Range)
		d.lineUp(t, k, r.place)
	case !left && t.rng == nil:
		d.hub.replay.ask(t)
		return 0
	case !left && d.unjudgedIn(t, t.rng):
		d.hub.replay.releaseRange(t)
		d.hub.replay.readLater(t)
		d.hub.replay.enqueue(t)
		return 1
	case !left:
		d.lineUp(t, nil, 0)
	case t.rng == nil:
		d.hub.replay.ask(t)
		return 0
	}
	return 1 + d.handOn(t)
}

// unjudgedIn reports whether the range was asked for before a content filter was known.
func (d *rankedDelivery) unjudgedIn(t *track, e *exchange.Range) bool {
	if !t.first.filtered && len(t.also) == 0 {
		return false
	}
	d.hub.looked(len(e.Messages))
	return slices.ContainsFunc(e.Messages, func(m *exchange.Message) bool { return m.Seq > t.pos && d.hub.judge(t, m) == unjudged })
}

// lineUp puts the messages of a ranking into the order in which the track hands them on, and names
// those that it does not. k nil: the range in hand is not ranked.
func (d *rankedDelivery) lineUp(t *track, k *ranked.Ranking[rankMember], member int) {
	var messages []*exchange.Message
	var answer exchange.RankedMember
	o, skips := ranked.Order{From: t.pos + 1}, false
	switch {
	case k == nil:
		messages = t.rng.Messages
	case k.Answer.Err != nil:
		messages, o.Mark = k.Messages, sendq.Unranked
	default:
		messages, answer, skips = k.Messages, k.Answer.Members[member], k.SkipsRest()
	}
	best := d.best[:0]
	o.Best = make([]ranked.Next, len(answer.Best))
	for i, b := range answer.Best {
		best = append(best, b.Place)
		o.Best[i] = ranked.Next{Seq: messages[b.Place].Seq, Mark: sendq.Scored(b.Score)}
	}
	slices.Sort(best)
	d.best = best
	if k != nil && len(answer.Filtered) == 0 && d.wantsAll(t, k) {
		d.lineUpAll(t, k, o, best, skips)
		return
	}
	out := uint64(0)
	for i, m := range messages {
		if m.Seq <= t.pos {
			continue
		}
		if m.Seq > t.pos+1 && out == 0 { // behind one that is handed on it is named in its turn
			d.hub.gaps.addGap(t, t.pos+1, m.Seq-1, wirev1.Code_CODE_RETENTION)
		}
		is := d.outcome(t, m)
		_, isBest := slices.BinarySearch(best, uint32(i))
		_, isFiltered := slices.BinarySearch(answer.Filtered, uint32(i))
		switch {
		case isBest: // what has expired since is named once it is its turn
		case is == messageExpired:
			d.hub.gaps.expired(t, m)
		case is == messageWanted && isFiltered:
			d.hub.gaps.addGap(t, m.Seq, m.Seq, wirev1.Code_CODE_FILTERED)
		case is == messageWanted && skips:
			d.hub.gaps.addGap(t, m.Seq, m.Seq, wirev1.Code_CODE_RANKED_OUT)
		case is == messageWanted:
			if out++; out == 1 {
				o.From = m.Seq
			}
			t.pos = m.Seq
			continue
		case is == messageFiltered:
			d.hub.gaps.addGap(t, m.Seq, m.Seq, wirev1.Code_CODE_FILTERED)
		}
		t.pos = m.Seq
		o.Skip = append(o.Skip, m.Seq)
	}
	d.hub.looked(2 * len(messages))
	if o.To = t.pos; out == 0 {
		o.From, o.To, o.Skip = 0, 0, nil
	}
	d.lined(t, k, o, out)
}

// lineUpAll is lineUp for a track that wants all messages of a ranking: only the best are looked
// at, by their places.
func (d *rankedDelivery) lineUpAll(t *track, k *ranked.Ranking[rankMember], o ranked.Order, best []uint32, skips bool) {
	first, last := o.From, o.From+uint64(len(k.Messages))-1
	next := first
	for _, place := range best {
		seq := first + uint64(place)
		if skips && seq > next {
			d.hub.gaps.addGap(t, next, seq-1, wirev1.Code_CODE_RANKED_OUT)
		}
		if !skips {
			o.Skip = append(o.Skip, seq)
		}
		next = seq + 1
	}
	if skips && next <= last {
		d.hub.gaps.addGap(t, next, last, wirev1.Code_CODE_RANKED_OUT)
	}
	d.hub.looked(len(best) * looksAsOne) // a hole is a frame
	if t.pos, o.To = last, last; skips || len(best) == len(k.Messages) {
		o.From, o.To, o.Skip = 0, 0, nil
	}
	d.lined(t, k, o, uint64(len(k.Messages)-len(best)))
}

// lined has the track hand on what was put in order, and so many behind the best.
func (d *rankedDelivery) lined(t *track, k *ranked.Ranking[rankMember], o ranked.Order, out uint64) {
	if o.Mark == sendq.Unranked {
		d.hub.stats.Unranked.add(code.Of(k.Answer.Err), out)
	}
	if back := t.rank.order.Best; len(back) > 0 { // what was put back meanwhile
		o.Best = append(back, o.Best...)
	}
	t.rank.order = o
}

// handOn hands on some of a track's order, and says how many.
func (d *rankedDelivery) handOn(t *track) (done int) {
	o := &t.rank.order
	for most := d.hub.replay.turnOf(t.c, t.ack); done < most; done++ {
		next, left := o.Next()
		if !left {
			d.ends(t)
			return done
		}
		m, elsewhere := d.inRange(t, next.Seq)
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
		switch d.outcome(t, m) {
		case messageSettled:
			o.Pop()
			continue
		case messageExpired:
			d.hub.gaps.expired(t, m)
			o.Pop()
			continue
		}
		why := wirev1.Code_CODE_QUEUE_FULL
		if d.hub.drained(t.c) {
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

// inRange finds a message in the track's range. elsewhere: it may be in another one; neither: the
// log has it no more.
func (d *rankedDelivery) inRange(t *track, seq uint64) (m *exchange.Message, elsewhere bool) {
	e := t.rng
	if e == nil || e.From > seq {
		return nil, true
	}
	i, found := slices.BinarySearchFunc(e.Messages, seq, func(m *exchange.Message, seq uint64) int {
		switch {
		case m.Seq < seq:
			return -1
		case m.Seq > seq:
			return 1
		}
		return 0
	})
	if found {
		return e.Messages[i], false
	}
	return nil, i == len(e.Messages) && i > 0
}

// ends decides how it goes on behind an order.
func (d *rankedDelivery) ends(t *track) {
	if t.rng == nil {
		d.hub.replay.enqueue(t)
		return
	}
	d.hub.replay.rangeEnds(t)
}
