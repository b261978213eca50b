// Package starts decides where a subscription begins in each of its topics, some topics at a time,
// and writes what Subscribed says of that.
package starts

import (
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// Start is where a subscription asked to begin, and the heads of logs that this is measured
// against.
type Start struct {
	Mode      wirev1.Start
	Seq       uint64
	Epoch     uint64
	Positions []*wirev1.Position
	Heads     []exchange.Head // once they are known

	wildcard bool
	// last are the namespaces, where topics that keep their last message begin with it; nil: none
	// does.
	last    *policy.Table
	byTopic map[string]*wirev1.Position // of Positions, by topics that are not placed yet
}

const (
	// HeadBytes is about what is kept for each topic that a subscription with wildcards begins
	// with: its head, until the subscription is open, and then a position.
	HeadBytes = 512
	// positionBytes is about what is kept for each position of a Subscribe beside its topic's name,
	// the entry by which it is found included.
	positionBytes = 256
)

// Kept is about how many bytes are kept for the positions of a Subscribe with wildcards; without
// them it has one position at most, which counts as none.
func Kept(m *wirev1.Subscribe) (bytes int) {
	if !topic.IsFilter(m.GetFilter()) {
		return 0
	}
	for _, p := range m.GetPositions() {
		bytes += positionBytes + len(p.GetTopic())
	}
	return bytes
}

// Of is what a Subscribe asks for. namespaces may be nil.
func Of(m *wirev1.Subscribe, namespaces func() *policy.Table) *Start {
	st := &Start{
		Mode: m.GetStart(), Seq: m.GetSeq(), Epoch: m.GetEpoch(), Positions: m.GetPositions(), wildcard: topic.IsFilter(m.GetFilter()),
	}
	if namespaces != nil && !m.GetSkipLast() && m.GetRankTopK() == 0 {
		st.last = namespaces()
	}
	if len(st.Positions) > 0 && st.Mode == wirev1.Start_START_LIVE {
		st.Mode = wirev1.Start_START_AFTER_SEQ
	}
	return st
}

// NeedsHeads reports whether a subscription to this filter is wrong without heads: they say which
// topics begin with the message that they keep.
func (st *Start) NeedsHeads(filter string) bool {
	return st.last != nil && st.last.AnyKeepLast(filter)
}

// live is where a subscription begins that has no position: at the head, or behind the message
// before the one that the topic keeps. What was published since the store was asked comes as well.
func (st *Start) live(head exchange.Head) point {
	p := point{pos: head.Head, recovered: true}
	if st.last != nil && st.last.For(head.Topic).KeepLast {
		p.pos, p.last = max(min(head.Behind, head.Head), max(head.Oldest, 1)-1), true
	}
	return p
}

// index checks a position, and makes it quick to find.
func (st *Start) index(filter string, p *wirev1.Position) error {
	if err := exchange.CheckPosition(filter, p); err != nil {
		return err
	}
	if st.byTopic == nil {
		st.byTopic = make(map[string]*wirev1.Position, len(st.Positions))
	}
	if st.byTopic[p.GetTopic()] != nil {
		return exchange.ErrTwoPositions
	}
	st.byTopic[p.GetTopic()] = p
	return nil
}
