package presence

import (
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Source is one incarnation of a process that reports.
type Source struct {
	ID          string
	Incarnation uint64
}

// Event is a net change of the set: a member's events alternate between joined and left. Changed
// ones, between the two, are of a member that has another state now.
type Event struct {
	Source        Source
	Member        *Member
	Left, Changed bool
}

// Follower keeps the members of one filter, of all sources together.
type Follower struct {
	id          uint64
	topics      Topics
	maxMembers  int
	asks        *uint64 // numbers that were given to asks, by all followers of the process
	sources     map[Source]*source
	memberCount int
	events      []Event
	resyncs     uint64
	failed      wirev1.Code
}

// source is what is known of one Source.
type source struct {
	Source
	ask, serial, n uint64
	staging        map[key]*Member // a snapshot that is on its way; nil: none
	members        map[key]*Member
	complete       bool // one snapshot has come
	heard, asked   time.Time
	leased         time.Time // zero: at once
	acked          uint64
	askSoon        bool
	wantedAt       time.Time
}

// NewFollower makes a follower without sources. id must be unique in the process, and asks shared
// by all of its followers. The follower fails when there are more than maxMembers.
func NewFollower(id uint64, topics Topics, most int, asks *uint64) *Follower {
	return &Follower{id: id, topics: topics, maxMembers: most, asks: asks, sources: map[Source]*source{}}
}

// Sources sets which sources exist (known), and which of them have to be followed (wanted). The
// members of a source that is gone, or that has another incarnation now, leave; a source that is
// not wanted any more is followed until it has no members.
func (f *Follower) Sources(now time.Time, known, wanted map[Source]bool) (ended []Source) {
	for _, s := range f.sources {
		switch {
		case !known[s.Source]:
			f.removeSource(s)
		case wanted[s.Source]:
			s.wantedAt = now
		case s.complete && len(s.members) == 0 && s.staging == nil && now.Sub(s.wantedAt) >= LeaseFor:
			delete(f.sources, s.Source)
			ended = append(ended, s.Source)
		}
	}
	for w := range wanted {
		if f.sources[w] == nil && known[w] {
			s := &source{Source: w, members: map[key]*Member{}, heard: now, wantedAt: now}
			f.sources[w] = s
			f.ask(now, s)
		}
	}
	return ended
}

func (f *Follower) removeSource(s *source) {
	for _, m := range s.members {
		f.addEvent(s, m, true)
	}
	f.memberCount -= len(s.members)
	delete(f.sources, s.Source)
}

func (f *Follower) addEvent(s *source, m *Member, left bool) {
	f.events = append(f.events, Event{Source: s.Source, Member: m, Left: left})
}

// ask requests a new stream from a source.
func (f *Follower) ask(now time.Time, s *source) {
	*f.asks++
	s.ask, s.asked, s.staging, s.askSoon, s.leased = *f.asks, now, nil, false, time.Time{}
	f.resyncs++
}

// AskAll requests a new stream from every source: reports may have been missed.
func (f *Follower) AskAll() {
	for _, s := range f.sources {
		s.askSoon = true
	}
}

// Leases calls say with every lease that is due to be sent.
func (f *Follower) Leases(now time.Time, say func(Source, *meshv1.PresenceLease_Watch)) {
	for _, s := range f.sources {
		if now.Sub(s.heard) >= SilentAfter && now.Sub(s.asked) >= RenewEvery {
			s.askSoon = true
		}
		if s.askSoon && now.Sub(s.asked) >= askAgain {
			f.ask(now, s)
		}
		if s.leased.IsZero() || now.Sub(s.leased) >= RenewEvery || s.staging != nil && s.n >= s.acked+ackEvery {
			s.leased, s.acked = now, s.n
			say(s.Source, &meshv1.PresenceLease_Watch{Id: f.id, Filter: f.topics.Filter, Named: f.topics.Named, Ask: s.ask, Serial: s.serial, N: s.n})
		}
	}
}

// Report takes in a report of a source.
func (f *Follower) Report(now time.Time, from Source, r *meshv1.PresenceReport) {
	s := f.sources[from]
	if s == nil || r.GetAsk() != s.ask || r.GetSerial() < s.serial && r.GetKind() != meshv1.PresenceReport_KIND_REFUSED {
		return // of an earlier stream
	}
	s.heard = now
	switch {
	case r.GetKind() == meshv1.PresenceReport_KIND_REFUSED:
		f.failed = r.GetCode()
		return
	case r.GetSerial() == 0:
		return
	case r.GetSerial() > s.serial:
		s.serial, s.n, s.acked, s.staging = r.GetSerial(), 0, 0, map[key]*Member{}
	}
	if r.GetKind() == meshv1.PresenceReport_KIND_BEAT {
		s.askSoon = s.askSoon || r.GetN() > s.n
		return
	}
	switch {
	case r.GetN() <= s.n: // doubled
	case r.GetN() > s.n+1:
		s.askSoon = true
	default:
		s.n++
		f.applyReport(s, r)
	}
}

func (f *Follower) applyReport(s *source, r *meshv1.PresenceReport) {
	for _, c := range r.GetChanges() {
		if c.GetMember() == nil {
			continue
		}
		if s.staging != nil {
			set(s.staging, c)
			continue
		}
		k := keyOf(c.GetMember())
		had := s.members[k]
		set(s.members, c)
		switch {
		case c.GetLeft() && had != nil:
			f.memberCount--
			f.addEvent(s, had, true)
		case !c.GetLeft() && had == nil:
			f.memberCount++
			f.addEvent(s, c.GetMember(), false)
		case !c.GetLeft():
			f.compareStates(s, had, s.members[k])
		}
	}
	if r.GetKind() == meshv1.PresenceReport_KIND_LAST && s.staging != nil {
		f.replaceBySnapshot(s)
	}
	if f.memberCount > f.maxMembers || f.memberCount-len(s.members)+len(s.staging) > f.maxMembers {
		f.failed = wirev1.Code_CODE_MEMORY_BUDGET
	}
}

// set applies a change to a set. A member that is in it already stays as it is, but for its state.
func set(members map[key]*Member, c *meshv1.PresenceChange) {
	k := keyOf(c.GetMember())
	if c.GetLeft() {
		delete(members, k)
	} else if had := members[k]; had == nil || had.GetStateAt() < c.GetMember().GetStateAt() {
		members[k] = c.GetMember()
	}
}

// compareStates adds an event for a member that has another state than it had.
func (f *Follower) compareStates(s *source, had, has *Member) {
	if had.GetStateAt() != has.GetStateAt() {
		f.events = append(f.events, Event{Source: s.Source, Member: has, Changed: true})
	}
}

// replaceBySnapshot makes the snapshot of a source its members, and adds events for the difference.
func (f *Follower) replaceBySnapshot(s *source) {
	for k, m := range s.members {
		if s.staging[k] == nil {
			f.addEvent(s, m, true)
		}
	}
	for k, m := range s.staging {
		if had := s.members[k]; had == nil {
			f.addEvent(s, m, false)
		} else {
			f.compareStates(s, had, m)
		}
	}
	f.memberCount += len(s.staging) - len(s.members)
	s.members, s.staging, s.complete = s.staging, nil, true
}

// TakeEvents returns the events since its last call.
func (f *Follower) TakeEvents() []Event {
	events := f.events
	f.events = nil
	return events
}

// Members yields the set that results from all events.
func (f *Follower) Members(yield func(Source, *Member) bool) {
	for _, s := range f.sources {
		for _, m := range s.members {
			if !yield(s.Source, m) {
				return
			}
		}
	}
}

// IncompleteSources is how many sources have not sent their first snapshot.
func (f *Follower) IncompleteSources() (n int) {
	for _, s := range f.sources {
		if !s.complete {
			n++
		}
	}
	return n
}

// EdgesSilent reports whether no source that lacks its first snapshot has sent a report for that
// long: there is nothing to wait for.
func (f *Follower) EdgesSilent(now time.Time, as time.Duration) bool {
	for _, s := range f.sources {
		if !s.complete && now.Sub(s.heard) < as {
			return false
		}
	}
	return true
}

// Failed returns why the follower can't continue; OK: it can. After a failure its set is
// incomplete.
func (f *Follower) Failed() wirev1.Code { return f.failed }

// MemberCount is how many members there are.
func (f *Follower) MemberCount() int { return f.memberCount }

// AsksSent is how many streams were asked for.
func (f *Follower) AsksSent() uint64 { return f.resyncs }

// Topics whose members are followed.
func (f *Follower) Topics() Topics { return f.topics }

// FollowedSources returns the sources that leases are sent to.
func (f *Follower) FollowedSources() (all []Source) {
	for s := range f.sources {
		all = append(all, s)
	}
	return all
}
