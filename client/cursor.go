package pushmesh

import "github.com/pushmesh/pushmesh/proto/gen/wirev1"

// maxOwed is how far behind the highest seq a message may stay un-handled before it is given up:
// the mesh itself keeps no more between a session's floor and its highest ACK.
const maxOwed = 65536

// cursor is how far one subscription has come in one topic. It is guarded by Subscriber.mu.
type cursor struct {
	sub   *Subscription
	epoch uint64
	// high is the highest seq handed over or named by Progress: where to resume.
	high uint64
	// done was handed over with success, or will not come.
	done seqset
	// owed was handed over and refused by the handler: the resume must not skip it.
	owed seqset
	acks ackRun
	// void says that what was had is of a log that is gone: the next resume asks for the topic from
	// its beginning.
	void bool
	// dealt is the epoch under which the message that is being dealt with was handed over.
	dealt uint64
	// nack is the handler's error about the message that is being dealt with.
	nack error
}

// renewed reports whether the message that is being dealt with is of a log that is gone meanwhile.
func (c *cursor) renewed() bool { return c.dealt != 0 && c.epoch != c.dealt }

// fresh reports whether nothing of the topic was had yet.
func (c *cursor) fresh() bool { return c.high == 0 && c.done.empty() && c.owed.empty() }

// position to resume after.
func (c *cursor) position() uint64 {
	if low := c.owed.min(); low > 0 && low <= c.high {
		return low - 1
	}
	return c.high
}

// restart begins at seq of an epoch, forgetting everything.
func (c *cursor) restart(epoch, seq uint64) {
	c.epoch, c.high = epoch, seq
	c.done, c.owed = c.nothing(), seqset{}
	if seq > 0 {
		c.done.add(0, seq)
	}
}

// nothing is a set that has room for what comes out of order.
func (c *cursor) nothing() seqset {
	if c.sub.ranked() {
		return seqset{most: rankedSpans}
	}
	return seqset{}
}

// succeeded notes that the handler has dealt with seq.
func (c *cursor) succeeded(seq uint64) {
	c.high = max(c.high, seq)
	c.done.add(seq, seq)
	if !c.owed.empty() {
		c.owed.remove(seq, seq)
	}
}

// failed notes that the handler refused seq. It returns what is given up for good because the
// distance has become too large.
func (c *cursor) failed(seq uint64) (given span, some bool) {
	c.high = max(c.high, seq)
	c.owed.add(seq, seq)
	low := c.owed.min()
	if c.high-low <= maxOwed {
		return span{}, false
	}
	given = span{low, c.high - maxOwed - 1}
	c.owed.remove(given.lo, given.hi)
	c.done.add(given.lo, given.hi)
	return given, true
}

// progress notes that from..to will not come. In a new epoch it restarts; the return value says
// whether it did.
func (c *cursor) progress(p *wirev1.Progress) (restarted bool) {
	switch e := p.GetEpoch(); {
	case e == 0 || e == c.epoch:
	case e < c.epoch: // greater is newer: late word of a log that is gone
		return false
	case c.epoch == 0 && c.fresh():
		c.epoch = e // named for the first time, and nothing was had before
	case c.epoch != 0 || p.GetCode() == wirev1.Code_CODE_EPOCH_CHANGED:
		// Whether from..to are of the old log or the new one makes no difference: resuming too
		// early costs a repetition that is dropped, too late would lose messages.
		c.restart(e, 0)
		return true
	default:
		c.epoch = e
	}
	if to := p.GetTo(); to > 0 {
		c.high = max(c.high, to)
		c.done.add(max(p.GetFrom(), 1), to)
		c.owed.remove(p.GetFrom(), to)
	}
	return false
}
