package presence

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// watch is one follower's stream of one filter's members.
type watch struct {
	watchKey
	reported *reported
	ask      uint64
	until    time.Time
	// serial names the stream; 0: it has not begun. n is the number of its last report, acked of
	// the last one that the follower has acknowledged.
	serial, n, acked uint64
	// Of the snapshot so many of reported.all are left, the first ones, while it is being sent. Who
	// takes the place of a member that has left was sent, or came since and was reported; one that
	// is sent twice is the same.
	sending bool
	left    int
	served  bool // among the tasks
}

// serve has a watch's stream begin where it may, and as much of its snapshot sent as may be, a
// report in each step.
func (r *Reporter) serve(w *watch) {
	if !w.served {
		w.served = true
		r.tasks = append(r.tasks, w)
	}
}

func (w *watch) step(r *Reporter) (done bool) {
	if r.watches[w.watchKey] != w { // it has ended
		return true
	}
	if w.serial == 0 && w.reported.walked {
		r.serials++
		r.flush(w.reported) // to those whose streams have begun
		w.serial, w.n, w.acked = r.serials, 0, 0
		w.sending, w.left = true, len(w.reported.all)
	}
	if w.mayBeSent() {
		r.sendPart(w)
	}
	w.served = w.mayBeSent()
	return !w.served
}

// mayBeSent reports whether a part of the snapshot is to be sent.
func (w *watch) mayBeSent() bool { return w.sending && w.n < w.acked+snapshotAhead }

// sendPart sends one part of the snapshot.
func (r *Reporter) sendPart(w *watch) {
	r.flush(w.reported) // what is sent must not be older than what was said before
	report, all := &meshv1.PresenceReport{Kind: meshv1.PresenceReport_KIND_PART}, w.reported.all
	size := 0
	for w.left = min(w.left, len(all)); w.left > 0 && len(report.Changes) < r.part && size < partBytes; {
		w.left--
		m := all[w.left].m
		report.Changes, size = append(report.Changes, &meshv1.PresenceChange{Member: m}), size+bytesOf(m)
	}
	if w.left == 0 {
		report.Kind, w.sending = meshv1.PresenceReport_KIND_LAST, false
	}
	r.sendNumbered(w, report)
}

func (r *Reporter) sendNumbered(w *watch, report *meshv1.PresenceReport) {
	w.n++
	report.Watch, report.Ask, report.Serial, report.N = w.id, w.ask, w.serial, w.n
	r.out.add(w.watchKey, report)
}

// flush sends what has changed.
func (r *Reporter) flush(f *reported) {
	for len(f.changes) > 0 {
		part := r.firstPart(f.changes)
		for w := range f.watches {
			if w.serial != 0 {
				r.sendNumbered(w, &meshv1.PresenceReport{Kind: meshv1.PresenceReport_KIND_CHANGES, Changes: part})
			}
		}
		f.changes = f.changes[len(part):]
	}
	f.changes = nil
}

// firstPart is as many changes as one report may have.
func (r *Reporter) firstPart(changes []*meshv1.PresenceChange) []*meshv1.PresenceChange {
	n, size := 0, 0
	for ; n < min(len(changes), r.part) && size < partBytes; n++ {
		size += bytesOf(changes[n].GetMember())
	}
	return changes[:n]
}

// bytesOf is about how many bytes a member takes in a report.
func bytesOf(m *Member) int {
	return len(m.GetTopic()) + len(m.GetClientId()) + len(m.GetUser()) + len(m.GetSession()) + len(m.GetState())
}

// Outgoing is a frame for a router.
type Outgoing struct {
	Router string
	Frame  *meshv1.PresenceFrame
}

// frameBuilder gathers reports into frames.
type frameBuilder struct {
	reports map[process][]*meshv1.PresenceReport
	order   []process
}

type process struct {
	router      string
	incarnation uint64
}

func (o *frameBuilder) add(k watchKey, report *meshv1.PresenceReport) {
	p := process{k.router, k.incarnation}
	if o.reports == nil {
		o.reports = map[process][]*meshv1.PresenceReport{}
	}
	if o.reports[p] == nil {
		o.order = append(o.order, p)
	}
	o.reports[p] = append(o.reports[p], report)
}

// frameBytes is about how many bytes one frame carries; a single report may be larger, and is well
// below 1 MiB.
const frameBytes = 256 << 10

func (o *frameBuilder) take(id string, incarnation uint64) (frames []Outgoing) {
	for _, p := range o.order {
		var frame *meshv1.PresenceFrame
		size := 0
		for _, report := range o.reports[p] {
			n := proto.Size(report)
			if frame == nil || size+n > frameBytes {
				frame, size = &meshv1.PresenceFrame{EdgeId: id, EdgeIncarnation: incarnation, RouterIncarnation: p.incarnation}, 0
				frames = append(frames, Outgoing{Router: p.router, Frame: frame})
			}
			frame.Reports = append(frame.Reports, report)
			size += n
		}
	}
	o.reports, o.order = nil, nil
	return frames
}
