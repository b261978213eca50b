// Package position knows how far a subscription has come in a topic's log.
package position

import "github.com/pushmesh/pushmesh/proto/gen/wirev1"

// MaxOwed is how far behind the highest seq a message may stay un-handled before it is given up:
// the mesh itself keeps no more between a session's floor and its highest ACK.
const MaxOwed = 65536

// Cursor is how far one subscription has come in one topic.
type Cursor struct {
	Epoch uint64
	// High is the highest seq handed over or named by Progress: where to resume.
	High uint64
	// Done was handed over with success, or will not come.
	Done Set
	// Owed was handed over and refused by the handler: the resume must not skip it.
	Owed Set
	// Void says that what was had is of a log that is gone: the next resume asks for the topic from
	// its beginning.
	Void bool

	ranked bool
}

// NewCursor of nothing. What comes ranked comes out of order.
func NewCursor(ranked bool) Cursor {
	c := Cursor{ranked: ranked}
	c.ForgetDone()
	return c
}

// ForgetDone has nothing count as done.
func (c *Cursor) ForgetDone() {
	c.Done = Set{}
	if c.ranked {
		c.Done.most = rankedSpans
	}
}

// Fresh reports whether nothing of the topic was had yet.
func (c *Cursor) Fresh() bool { return c.High == 0 && c.Done.Empty() && c.Owed.Empty() }

// Settled reports whether nothing up to seq is owed.
func (c *Cursor) Settled(seq uint64) bool {
	low := c.Owed.Min()
	return low == 0 || low > seq
}

// Position to resume after.
func (c *Cursor) Position() uint64 {
	if low := c.Owed.Min(); low > 0 && low <= c.High {
		return low - 1
	}
	return c.High
}

// Restart begins at seq of an epoch, forgetting everything.
func (c *Cursor) Restart(epoch, seq uint64) {
	c.Epoch, c.High, c.Owed = epoch, seq, Set{}
	c.ForgetDone()
	if seq > 0 {
		c.Done.Add(0, seq)
	}
}

// Succeeded notes that the handler has dealt with seq.
func (c *Cursor) Succeeded(seq uint64) {
	c.High = max(c.High, seq)
	c.Done.Add(seq, seq)
	if !c.Owed.Empty() {
		c.Owed.Remove(seq, seq)
	}
}

// Failed notes that the handler refused seq. It returns what is given up for good because the
// distance has become too large.
func (c *Cursor) Failed(seq uint64) (given Span, some bool) {
	c.High = max(c.High, seq)
	c.Owed.Add(seq, seq)
	low := c.Owed.Min()
	if c.High-low <= MaxOwed {
		return Span{}, false
	}
	given = Span{low, c.High - MaxOwed - 1}
	c.Owed.Remove(given.Lo, given.Hi)
	c.Done.Add(given.Lo, given.Hi)
	return given, true
}

// Renewed reports whether p is of a log that took the place of the one that the cursor is of.
func (c *Cursor) Renewed(p *wirev1.Progress) bool {
	switch e := p.GetEpoch(); {
	case e <= c.Epoch: // greater is newer
		return false
	case c.Epoch == 0: // named for the first time: it may be of what was had before
		return !c.Fresh() && p.GetCode() == wirev1.Code_CODE_EPOCH_CHANGED
	}
	return true
}

// Progress notes that from..to will not come. In a new epoch it restarts; the return value says
// whether it did.
func (c *Cursor) Progress(p *wirev1.Progress) (restarted bool) {
	switch e := p.GetEpoch(); {
	case c.Renewed(p):
		// Whether from..to are of the old log or the new one makes no difference: resuming too
		// early costs a repetition that is dropped, too late would lose messages.
		c.Restart(e, 0)
		return true
	case e != 0 && e < c.Epoch: // late word of a log that is gone
		return false
	case e != 0:
		c.Epoch = e
	}
	if to := p.GetTo(); to > 0 {
		c.High = max(c.High, to)
		c.Done.Add(max(p.GetFrom(), 1), to)
		c.Owed.Remove(p.GetFrom(), to)
	}
	return false
}
