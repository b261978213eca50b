package sendq

import "time"

// A socket is stalled while the kernel takes nothing for it. What the kernel holds by then counts
// for the queue.

// IsStalled reports whether the kernel takes nothing for the socket. The queue may be empty.
func (q *Queue) IsStalled() bool { return q.s.stalled }

// Stall notes that the kernel takes nothing for the socket, holds so many bytes for it, and that
// its client has taken so many in all. It gives how long that has taken nothing.
func (q *Queue) Stall(now int64, kernel int, taken uint64) (idle time.Duration) {
	s := q.s
	switch {
	case !s.stalled:
		s.stalled, s.stalledAt, s.taken, s.late = true, now, taken, false
		s.shared.stalled++
	case s.taken != taken:
		s.stalledAt, s.taken, s.late = now, taken, false
	}
	s.setKernel(kernel)
	return time.Duration(now - s.stalledAt)
}

func (s *state) setKernel(bytes int) {
	more := bytes - int(s.kernel)
	s.kernel = uint32(bytes)
	s.shared.kernel += int64(more)
	s.charge(more)
}

// TurnLate notes that the client has taken nothing for too long and reports whether that is new.
func (q *Queue) TurnLate() bool {
	was := q.s.late
	q.s.late = true
	return !was
}

// StalledSince has the time for which the client takes nothing begin at another moment.
func (q *Queue) StalledSince(at int64) { q.s.stalledAt = at }

// Resume notes that the kernel takes bytes again, or need not. The queue may be empty.
func (q *Queue) Resume() {
	s := q.s
	if !s.stalled {
		return
	}
	s.stalled, s.stalledAt, s.taken, s.late = false, 0, 0, false
	s.shared.stalled--
	if s.setKernel(0); s.n == 0 && s.beside == 0 {
		q.give()
	}
}

// SetBeside says how many bytes wait for the socket that have left the queue in another form. They
// count for the queue, and can't be dropped from it. The queue may be empty; owner is its number
// then.
func (q *Queue) SetBeside(shared *Shared, owner uint32, n int) {
	if q.IsEmpty() {
		if n == 0 {
			return
		}
		q.s = shared.take(owner)
	}
	s := q.s
	more := n - int(s.beside)
	s.beside = uint32(n)
	s.shared.bytes += int64(more)
	if s.charge(more); s.n == 0 && n == 0 && !s.stalled {
		q.give()
	}
}

// LetGo drops all, and what is beside: the socket is about to be reset. The queue may be empty.
func (q *Queue) LetGo() {
	q.DropAll(int(q.s.n))
	q.SetBeside(nil, 0, 0)
	q.Resume()
}

// levels of a queue, in per cent of its limits. One counts again once the queue was below half of
// it.
var levels = [...]int{50, 80}

// Level of the queue, in per cent of its limits: the highest of a few that it has reached. raised
// says that it is higher than when it was asked last.
func (q *Queue) Level() (percent int, raised bool) {
	s := q.s
	limits := s.shared.limits
	depth := max(s.bytes*100/limits.Bytes, int(s.messages)*100/limits.Messages)
	for s.level > 0 && depth < levels[s.level-1]/2 {
		s.level--
	}
	before := s.level
	for int(s.level) < len(levels) && depth >= levels[s.level] {
		s.level++
	}
	if s.level == 0 {
		return 0, false
	}
	return levels[s.level-1], s.level > before
}
