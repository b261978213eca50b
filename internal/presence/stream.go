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
	// snapshot holds the members at the begin of the stream that are not sent yet; nil once all
	// were. A member that has left meanwhile is skipped, for a change in the stream has reported
	// it.
	snapshot []*entry
}

// serve begins a watch's stream where it may, and sends as much of its snapshot as it may.
func (r *Reporter) serve(w *watch) {
	if w.serial == 0 {
		if !w.reported.walked {
			return
		}
		r.flush(w.reported) // what the snapshot contains
		r.serials++
		w.serial, w.n, w.acked = r.serials, 0, 0
		w.snapshot = make([]*entry, 0, w.reported.memberCount)
		for _, es := range w.reported.members {
			w.snapshot = append(w.snapshot, es...)
		}
	}
	for w.snapshot != nil && w.n < w.acked+snapshotAhead {
		report := &meshv1.PresenceReport{Kind: meshv1.PresenceReport_KIND_PART}
		for len(w.snapshot) > 0 && len(report.Changes) < r.part {
			if e := w.snapshot[0]; !e.gone {
				report.Changes = append(report.Changes, &meshv1.PresenceChange{Member: e.m})
			}
			w.snapshot = w.snapshot[1:]
		}
		if len(w.snapshot) == 0 {
			report.Kind, w.snapshot = meshv1.PresenceReport_KIND_LAST, nil
		}
		r.sendNumbered(w, report)
	}
}

func (r *Reporter) sendNumbered(w *watch, report *meshv1.PresenceReport) {
	w.n++
	report.Watch, report.Ask, report.Serial, report.N = w.id, w.ask, w.serial, w.n
	r.out.add(w.watchKey, report)
}

// flush sends what has changed.
func (r *Reporter) flush(f *reported) {
	for len(f.changes) > 0 {
		part := f.changes[:min(len(f.changes), r.part)]
		for w := range f.watches {
			if w.serial != 0 {
				r.sendNumbered(w, &meshv1.PresenceReport{Kind: meshv1.PresenceReport_KIND_CHANGES, Changes: part})
			}
		}
		f.changes = f.changes[len(part):]
	}
	f.changes = nil
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

// frameBytes is about how many bytes one frame carries; a single report may be larger, and is below
// 1 MiB.
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
