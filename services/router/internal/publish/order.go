package publish

import (
	"bytes"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const (
	// maxStopped is how many topics of a stream are remembered; of others the store says what is
	// out of order.
	maxStopped = 4096
	// stoppedFor is how long: a producer may have gone on elsewhere meanwhile.
	stoppedFor = 5 * time.Second
)

// order refuses, without asking the store, what follows a refused message in a numbered topic of a
// stream: the store would refuse it too, and when messages are refused it has enough to do. It
// belongs to the stream's reader.
type order struct {
	id      []byte // of the producer
	stopped map[string]stop
}

// stop is the number that was refused.
type stop struct {
	seq   uint64
	until time.Time
}

// check refuses a number beyond one that was refused; the producer begins again with that one, or a
// lower one.
func (o *order) check(now time.Time, id []byte, topic string, seq uint64) error {
	if seq == 0 {
		return nil
	}
	if !bytes.Equal(id, o.id) {
		clear(o.stopped)
		return nil
	}
	at, ok := o.stopped[topic]
	if !ok {
		return nil
	}
	if seq <= at.seq || now.After(at.until) {
		delete(o.stopped, topic)
		return nil
	}
	return code.New(wirev1.Code_CODE_OUT_OF_ORDER, fmt.Sprintf("producer_seq is %d after %d was refused: send again from %[2]d on", seq, at.seq))
}

// refused notes a message that was not let in.
func (o *order) refused(now time.Time, id []byte, m *pushmeshv1.PublishRequest, seq uint64) {
	if seq == 0 || m.GetTopic() == "" || len(o.stopped) >= maxStopped {
		return
	}
	if !bytes.Equal(id, o.id) { // a numbered message has an id
		o.id, o.stopped = bytes.Clone(id), map[string]stop{}
	}
	o.stopped[m.GetTopic()] = stop{seq, now.Add(stoppedFor)}
}
