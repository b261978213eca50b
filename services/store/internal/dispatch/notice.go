package dispatch

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

const (
	// overhead is more than tags, lengths and numbers of a run and a record take.
	overhead = 64
	// maxNotice is the most bytes that go into one message of the bus.
	maxNotice = bus.MaxMessage - overhead
)

// notice is one message for a router.
type notice struct {
	m        *meshv1.Stored
	runs     map[string]*meshv1.StoredRun // the last of each topic
	size     int                          // no less than the encoding's
	messages int
}

func newNotice() notice { return notice{m: &meshv1.Stored{}, runs: map[string]*meshv1.StoredRun{}} }

func sizeOf(item *meshv1.AppendItem) int {
	return len(item.GetTopic()) + len(item.GetBody()) + overhead
}

// add appends a message to its topic's run, or begins another where it does not follow on.
func (n *notice) add(m message) {
	r := n.runs[m.item.GetTopic()]
	if r == nil || r.GetEpoch() != m.at.GetEpoch() || r.GetFirstSeq()+uint64(len(r.GetRecords())) != m.at.GetSeq() {
		r = &meshv1.StoredRun{Topic: m.item.GetTopic(), Epoch: m.at.GetEpoch(), FirstSeq: m.at.GetSeq()}
		n.runs[r.GetTopic()] = r
		n.m.Runs = append(n.m.Runs, r)
	}
	r.Records = append(r.Records, &meshv1.StoredRecord{ExpiresAt: m.item.GetExpiresAt(), Body: m.item.GetBody()})
	n.messages++
}

func (n *notice) send(b Bus) error {
	data, err := proto.Marshal(n.m)
	if err != nil {
		return fmt.Errorf("stored: %w", err)
	}
	return b.Publish(bus.Stored, data)
}
