package presence

import (
	"time"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// ReporterConfig of a Reporter.
type ReporterConfig struct {
	ID          string
	Incarnation uint64
	// Loops is how many event loops report members, each of its own connections.
	Loops int
	// Members that may match one filter, and filters and watches (a filter of one follower) at a
	// time.
	MaxMembers, MaxFilters, MaxWatches int
	// MaxNamed is how many of the topics that are watched may be Topics.Named, beside MaxFilters,
	// and as many more watches.
	MaxNamed int
}

// Reporter keeps the members of filters that have followers, and reports to them. It keeps nothing
// for other filters.
type Reporter struct {
	cfg      ReporterConfig
	filters  map[Topics]*reported
	named    int                    // of filters
	inNamed  map[uint64][]*reported // of those, in which a connection is
	wild     topic.Index[*reported] // of those, with wildcards: what loops match with
	watches  map[watchKey]*watch
	part     int // members of a report
	look     int // members that a step looks at
	serials  uint64
	walks    uint64
	members  int
	commands []Command
	out      frameBuilder
	changed  []*reported // that have changes to be passed on
	tasks    []task      // what takes steps
	lookAt   time.Time   // when the ends of leases are looked at next
	refused  [64]uint64
}

// task grows with the members. Between two steps anything may happen.
type task interface {
	step(r *Reporter) (done bool)
}

type watchKey struct {
	router      string
	incarnation uint64
	id          uint64
}

// Command makes a loop report changes of a filter from now on, and walk over the members that are
// there already. Walk 0 ends this.
type Command struct {
	Loop   int
	Filter string
	Named  bool
	Walk   uint64
}

// Change is what a loop reports, in the order in which it happens there.
type Change struct {
	Kind ChangeKind
	// Filter, Named and Walk as in the last Command that the loop has seen; not of Ended.
	Filter string
	Named  bool
	Walk   uint64
	// Member, of which Left and Ended need the names alone. Its topic is empty where the filter is
	// one.
	Member *Member
}

// ChangeKind is the kind of a Change.
type ChangeKind uint8

const (
	// Joined says that the member is there, with the state that it has. It may be reported again.
	Joined ChangeKind = iota
	// Left says that the member is not there. It may be reported again.
	Left
	// Ended says that the connection is gone from every filter.
	Ended
	// Missed says that changes of this loop were lost, and all members are walked over again.
	Missed
	// Walked says that every member that was there when the walk began was reported, or has left.
	Walked
)

// NewReporter makes a reporter without followers.
func NewReporter(cfg ReporterConfig) *Reporter {
	return &Reporter{cfg: cfg, part: partSize, look: membersOfStep, filters: map[Topics]*reported{}, inNamed: map[uint64][]*reported{}, watches: map[watchKey]*watch{}}
}

// Lease takes in a follower's leases.
func (r *Reporter) Lease(now time.Time, l *meshv1.PresenceLease) {
	if l.GetEdgeIncarnation() != r.cfg.Incarnation {
		return
	}
	for _, id := range l.GetEnded() {
		if w := r.watches[watchKey{l.GetRouterId(), l.GetRouterIncarnation(), id}]; w != nil {
			r.endWatch(w)
		}
	}
	for _, want := range l.GetWatches() {
		r.lease(now, watchKey{l.GetRouterId(), l.GetRouterIncarnation(), want.GetId()}, want)
	}
}

func (r *Reporter) lease(now time.Time, k watchKey, want *meshv1.PresenceLease_Watch) {
	w := r.watches[k]
	if w == nil {
		topics := Topics{want.GetFilter(), want.GetNamed()}
		f := r.filters[topics]
		if len(r.watches) >= r.cfg.MaxWatches+r.cfg.MaxNamed || f == nil && !r.hasRoom(topics) {
			r.refuse(k, want.GetAsk(), wirev1.Code_CODE_OVERLOADED)
			return
		}
		if f == nil {
			f = r.addFilter(topics)
		}
		w = &watch{watchKey: k, reported: f, ask: want.GetAsk()}
		r.watches[k] = w
		f.watches[w] = struct{}{}
	}
	switch {
	case want.GetAsk() < w.ask:
		return // an old one
	case want.GetAsk() > w.ask:
		w.ask, w.serial, w.sending = want.GetAsk(), 0, false
	case want.GetSerial() == w.serial:
		w.acked = max(w.acked, min(want.GetN(), w.n))
	}
	w.until = now.Add(LeaseFor)
	r.serve(w)
	r.out.add(w.watchKey, &meshv1.PresenceReport{Kind: meshv1.PresenceReport_KIND_BEAT, Watch: w.id, Ask: w.ask, Serial: w.serial, N: w.n})
}

// hasRoom reports whether one more filter may be followed.
func (r *Reporter) hasRoom(t Topics) bool {
	if t.Named {
		return r.named < r.cfg.MaxNamed
	}
	return len(r.filters)-r.named < r.cfg.MaxFilters && (!t.wild() || r.wild.Fits(t.Filter))
}

// Advance ends watches whose leases were not renewed, and sends what has changed.
func (r *Reporter) Advance(now time.Time) {
	if !now.Before(r.lookAt) {
		r.lookAt = now.Add(lookEvery)
		for _, w := range r.watches {
			if !now.Before(w.until) {
				r.endWatch(w)
			}
		}
	}
	for _, f := range r.changed {
		r.flush(f)
	}
	clear(r.changed)
	r.changed = r.changed[:0]
}

// Working reports whether Step has something to do.
func (r *Reporter) Working() bool { return len(r.tasks) > 0 }

// Step does some of what takes long, the snapshots of streams and the ends of walks: about 0.1 ms
// of it at most, but for pauses of the garbage collector. Its callers call Step again until Working
// is false, and may call anything in between.
func (r *Reporter) Step() {
	if len(r.tasks) == 0 {
		return
	}
	t := r.tasks[0]
	r.tasks[0] = nil
	if r.tasks = r.tasks[1:]; !t.step(r) {
		r.tasks = append(r.tasks, t)
	}
}

// Due returns when Advance has to look for ended leases; ok is false without followers.
func (r *Reporter) Due() (at time.Time, ok bool) { return r.lookAt, len(r.watches) > 0 }

func (r *Reporter) endWatch(w *watch) {
	delete(r.watches, w.watchKey)
	delete(w.reported.watches, w)
	if len(w.reported.watches) == 0 {
		r.removeFilter(w.reported)
	}
}

func (r *Reporter) refuse(k watchKey, ask uint64, why wirev1.Code) {
	r.refused[why]++
	r.out.add(k, &meshv1.PresenceReport{Kind: meshv1.PresenceReport_KIND_REFUSED, Watch: k.id, Ask: ask, Code: why})
}

// Take returns the frames to be sent, in order, with the router that each goes to, and the commands
// for loops.
func (r *Reporter) Take() ([]Outgoing, []Command) {
	frames, commands := r.out.take(r.cfg.ID, r.cfg.Incarnation), r.commands
	r.commands = nil
	return frames, commands
}

// ReporterStats of a Reporter.
type ReporterStats struct {
	Filters, Watches, Members int
	// Named of the filters are topics that are watched so.
	Named int
}

// Stats counts.
func (r *Reporter) Stats() ReporterStats {
	return ReporterStats{Filters: len(r.filters), Watches: len(r.watches), Members: r.members, Named: r.named}
}

// Refused returns how many watches were refused with a code.
func (r *Reporter) Refused(why wirev1.Code) uint64 { return r.refused[why] }
