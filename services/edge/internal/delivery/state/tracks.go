package state

import (
	"cmp"
	"slices"

	"github.com/pushmesh/pushmesh/services/edge/internal/sys/slab"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// Tracks are what each connection is sent of each topic, on one loop.
type Tracks struct {
	Arrays *slab.Arrays
	Conns  *Conns
	Topics *Topics
	Cost   *walk.Cost

	Slab  slab.Slab[Track]
	Mores slab.Pool[TrackMore]
	found []*Track // scratch
	// gens are given to subscriptions and tracks, so that what refers to one that is gone is seen.
	gens uint32
}

// More is the track's TrackMore, to be written to.
func (p *Tracks) More(t *Track) *TrackMore {
	if t.TrackMore == NoTrackMore {
		t.TrackMore = p.Mores.Take()
	}
	return t.TrackMore
}

// Less gives TrackMore back where nothing is in it.
func (p *Tracks) Less(t *Track) {
	m := t.TrackMore
	if m != NoTrackMore && m.Also == nil && m.Win == nil && !m.Gap.IsOpen() && m.RetryAt == 0 && !m.Few && m.Range == nil && m.Latest == nil && m.Cursor == nil && m.Rank == nil && !m.Changed && !m.Unnamed && m.First == 0 && !t.Held && !t.Reading {
		p.Mores.Give(m)
		t.TrackMore = NoTrackMore
	}
}

// NextGen is never 0.
func (p *Tracks) NextGen() uint32 {
	p.gens = max(p.gens+1, 1)
	return p.gens
}

// Combine works out what the subscriptions together ask for.
func (p *Tracks) Combine(t *Track) {
	p.Cost.Add(len(t.Also))
	t.ACK, t.Window, t.Overflow = false, 0, t.First.Overflow
	alike := true
	for i := -1; i < len(t.Also); i++ {
		s := t.First
		if i >= 0 {
			s = t.Also[i]
		}
		t.ACK = t.ACK || s.ACK
		alike = alike && WantAlike(s, t.First)
		if s.Window > 0 && (t.Window == 0 || s.Window < t.Window) {
			t.Window = s.Window
		}
		if s.Overflow != t.Overflow {
			// They get one Message for all, so nothing may be left out that one of them wants.
			t.Overflow = OverflowDefault
		}
	}
	if t.Overflow == OverflowDefault {
		t.Overflow = uint8(p.Topics.Policy(t.Topic).Overflow)
	}
	if t.Overflow == OverflowConflate && !alike {
		t.Overflow = OverflowDefault // the newest may be wanted by one of them alone
	}
	if t.Overflow == OverflowDropOldest && (t.ACK || t.Kind == KindSession) {
		t.Overflow = OverflowDefault
	}
	p.setTopK(t)
}

// setTopK works out how many of the best the subscriptions of a track want together: they get one
// Message for all, so they are ranked if all want that.
func (p *Tracks) setTopK(t *Track) {
	topK := t.First.TopK
	for _, s := range t.Also {
		if s.TopK == 0 {
			topK = 0
		}
		if topK > 0 {
			topK = max(topK, s.TopK)
		}
	}
	if topK == 0 && t.Rank == nil {
		return
	}
	more := p.More(t)
	if more.Rank == nil {
		more.Rank = &RankState{}
	}
	more.Rank.TopK = topK
	if t.Overflow == OverflowConflate || t.Overflow == OverflowDropOldest {
		// there is no oldest or newest in what comes best first
		t.Overflow = OverflowDefault
	}
}

// ManyOf is how many subscriptions or tracks of a connection are looked through; more are indexed.
const ManyOf = 16

// Of are the connection's tracks at ts. The answer is good until it is asked for again.
func (p *Tracks) Of(c *Conn, ts *Topic) []*Track {
	if c.ByTopic != nil {
		all := c.ByTopic[ts]
		p.Cost.Add(len(all))
		return all
	}
	p.found = p.found[:0]
	for _, t := range c.Tracks.All() {
		if t.Topic == ts {
			p.found = append(p.found, t)
		}
	}
	return p.found
}

// SharedBy finds the track that s shares at ts. However many the connection has there, few are
// looked at.
func (p *Tracks) SharedBy(s *Subscription, ts *Topic) *Track {
	if s.Conn.ByTopic == nil {
		for _, t := range s.Conn.Tracks.All() {
			if t.Topic == ts && t.sharers() == sharersOf(s) {
				return t
			}
		}
		return nil
	}
	all := s.Conn.ByTopic[ts]
	if i, found := placeOf(all, sharersOf(s)); found {
		return all[i]
	}
	return nil
}

// sharersOf tells the tracks of a connection in one topic apart, and orders them: those of a kind
// are shared by its subscriptions, and of KindOwn each has its own.
func sharersOf(s *Subscription) uint64 {
	if s.Kind != KindOwn {
		return uint64(s.Kind)
	}
	return 1<<32 | uint64(s.Ref)
}

func (t *Track) sharers() uint64 {
	if t.Kind != KindOwn {
		return uint64(t.Kind)
	}
	return sharersOf(t.First)
}

// placeOf is where the track is, or belongs, among those of one topic.
func placeOf(all []*Track, sharers uint64) (i int, found bool) {
	return slices.BinarySearchFunc(all, sharers, func(t *Track, sharers uint64) int { return cmp.Compare(t.sharers(), sharers) })
}

// index puts a track among those of its topic.
func index(byTopic map[*Topic][]*Track, t *Track) {
	all := byTopic[t.Topic]
	i, _ := placeOf(all, t.sharers())
	byTopic[t.Topic] = slices.Insert(all, i, t)
}

// Add gives s a track at ts; it stands nowhere yet.
func (p *Tracks) Add(s *Subscription, ts *Topic) *Track {
	c := s.Conn
	t := p.Slab.Take()
	*t = Track{
		Conn: c, Topic: ts, Kind: s.Kind, First: s, AtTopic: uint32(ts.Tracks.Len()), AtConn: uint32(c.Tracks.Len()),
		gen: p.NextGen(), TrackMore: NoTrackMore,
	}
	p.Combine(t)
	ts.Tracks.Append(p.Arrays, t)
	p.link(c, t)
	return t
}

func (p *Tracks) link(c *Conn, t *Track) {
	c.Displaced()
	c.Tracks.Append(p.Arrays, t)
	switch {
	case c.ByTopic != nil:
		index(c.ByTopic, t)
	case c.Tracks.Len() > ManyOf:
		byTopic := map[*Topic][]*Track{}
		for _, t := range c.Tracks.All() {
			index(byTopic, t)
		}
		p.Conns.More(c).ByTopic = byTopic
	}
}

// Unlink takes the track out of its connection's list.
func (p *Tracks) Unlink(t *Track) {
	c := t.Conn
	c.Displaced()
	if moved := c.Tracks.Take(p.Arrays, int(t.AtConn)); moved != nil {
		moved.AtConn = t.AtConn
	}
	if c.ByTopic == nil {
		return
	}
	all := c.ByTopic[t.Topic]
	if i, found := placeOf(all, t.sharers()); found {
		all = slices.Delete(all, i, i+1)
	}
	if c.ByTopic[t.Topic] = all; len(all) == 0 {
		delete(c.ByTopic, t.Topic)
	}
	if c.Tracks.Len() == 0 {
		p.Conns.More(c).ByTopic = nil
		p.Conns.Less(c)
	}
}

// Share makes s one of the track's subscriptions.
func (p *Tracks) Share(t *Track, s *Subscription) {
	if !t.Has(s) {
		more := p.More(t)
		more.Also = append(more.Also, s)
		p.Combine(t)
	}
}

// Unshare takes s away; false where nobody is left.
func (p *Tracks) Unshare(t *Track, s *Subscription) bool {
	if t.First == s {
		if len(t.Also) == 0 {
			return false
		}
		more := p.More(t)
		t.First, more.Also = more.Also[0], more.Also[1:]
	} else if i := slices.Index(t.Also, s); i >= 0 {
		p.More(t).Also = slices.Delete(t.Also, i, i+1)
	}
	if t.Also != nil && len(t.Also) == 0 {
		p.More(t).Also = nil
		p.Less(t)
	}
	p.Combine(t)
	return true
}

// LeaveTopic takes the track at a place out of the topic's list.
func (p *Tracks) LeaveTopic(ts *Topic, at int) {
	if moved := ts.Tracks.Take(p.Arrays, at); moved != nil {
		moved.AtTopic = uint32(at)
	}
}

// Free gives back a track that nothing refers to.
func (p *Tracks) Free(t *Track) {
	if t.TrackMore != NoTrackMore {
		p.Mores.Give(t.TrackMore)
	}
	*t = Track{}
	p.Slab.Free(t)
}
