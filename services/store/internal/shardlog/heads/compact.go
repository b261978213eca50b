package heads

// Forgotten topics leave their names and places behind. A table without them is made beside while
// this one is used: names, which are most of the work, some at a time, and what is known of the
// topics at the end, all at once.

// sparse is which part of the numbers may be of forgotten topics; few of them stay anyway.
const (
	sparse    = 4
	fewGone   = chunk
	fewAtOnce = 1024
)

// Sparse reports whether compacting is worth it.
func (t *Table) Sparse() bool { return t.gone > fewGone && t.gone > t.n/sparse }

// Compaction is a smaller table in the making. Some and End look at the table that it is made from,
// which may change between their calls; Index does not.
type Compaction struct {
	from, to *Table
	seen     uint32   // numbers
	old      []uint32 // numbers of the topics that were taken over
	passed   []uint32 // numbers of those that were not
}

// Compact begins a compaction.
func (t *Table) Compact() *Compaction { return &Compaction{from: t, to: &Table{}} }

// Some takes over names of up to 1,024 topics; more says that there are more.
func (c *Compaction) Some() (more bool) {
	t := c.from
	for end := min(uint32(t.n), c.seen+fewAtOnce); c.seen < end; {
		c.seen++
		topic := t.at(c.seen)
		if topic.epoch == 0 {
			c.passed = append(c.passed, c.seen)
			continue
		}
		c.to.Append(t.names.view(topic.name), t.Epoch(topic))
		c.old = append(c.old, c.seen)
	}
	return c.seen < uint32(t.n)
}

// Index has the names be found that were taken over.
func (c *Compaction) Index() { c.to.Index() }

// End takes over what is known of the topics now. The old table is not to be changed any more; who
// looks at it may go on.
func (c *Compaction) End() *Table {
	for i, old := range c.old {
		c.take(uint32(i+1), old)
	}
	for _, old := range c.passed {
		c.takeNew(old)
	}
	for old := c.seen + 1; old <= uint32(c.from.n); old++ {
		c.takeNew(old)
	}
	return c.to
}

// take has a topic of the new table be what one of the old is.
func (c *Compaction) take(n, old uint32) {
	to, from := c.to.at(n), *c.from.at(old)
	from.name = to.name
	if from.epoch == 0 {
		c.to.gone++
	} else {
		// every epoch of the old table has a place in the new one
		from.epoch = c.to.epoch(c.from.epochs[from.epoch-1])
	}
	if *to = from; from.changed {
		c.to.changed = append(c.to.changed, n)
	}
}

// takeNew takes over a topic that came after its name was passed.
func (c *Compaction) takeNew(old uint32) {
	from := c.from.at(old)
	if from.epoch == 0 {
		return
	}
	// there is room: the old table has more topics
	c.to.Add(c.from.names.view(from.name), c.from.Epoch(from))
	c.take(uint32(c.to.n), old)
}
