// Package starts decides where a subscription begins in each of its topics, some topics at a time,
// and writes what Subscribed says of that.
package starts

import (
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
	byTopic  map[string]*wirev1.Position // of Positions, by topics that are not placed yet
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

// Of is what a Subscribe asks for.
func Of(m *wirev1.Subscribe) *Start {
	st := &Start{
		Mode: m.GetStart(), Seq: m.GetSeq(), Epoch: m.GetEpoch(), Positions: m.GetPositions(), wildcard: topic.IsFilter(m.GetFilter()),
	}
	if len(st.Positions) > 0 && st.Mode == wirev1.Start_START_LIVE {
		st.Mode = wirev1.Start_START_AFTER_SEQ
	}
	return st
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
