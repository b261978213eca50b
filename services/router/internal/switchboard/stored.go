package switchboard

import (
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/router/internal/edgequeue"
)

// shareStored makes this router one of those that route what stores appended on their own. That
// waits until its table can be trusted: a router that knows no edge yet would take notices and
// route them to nobody.
func (s *Switchboard) shareStored() {
	if s.unshareStored != nil || s.Check() != nil {
		return
	}
	leave, err := s.cfg.Bus.Share(bus.Stored, bus.Routers, pending, s.stored)
	if err != nil {
		s.cfg.Log.Warn("this router does not receive messages that stores append on their own", "error", err)
		return
	}
	s.unshareStored = leave
}

// stored routes what a store appended without a router, as if this router had appended it: interest
// is looked up now, which is after the commit.
func (s *Switchboard) stored(data []byte) {
	var m meshv1.Stored
	if proto.Unmarshal(data, &m) != nil {
		s.metrics.badMessages.Inc()
		return
	}
	s.Cork()
	defer s.Uncork()
	for _, r := range m.GetRuns() {
		for i, rec := range r.GetRecords() {
			s.Route(&edgequeue.Delivery{
				Topic: r.GetTopic(), Epoch: r.GetEpoch(), Seq: r.GetFirstSeq() + uint64(i), ExpiresAt: rec.GetExpiresAt(), Body: rec.GetBody(),
			})
		}
		s.metrics.stored.Add(float64(len(r.GetRecords())))
	}
	for _, t := range m.GetCheckTopics() {
		s.CheckTopic(t)
	}
}
