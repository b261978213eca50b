// Package begin says where a Subscribe begins.
package begin

import "github.com/pushmesh/pushmesh/proto/gen/wirev1"

// Asked reports whether a Subscribe, or one that resumes it, names a position, so that
// recovered=false is a loss.
func Asked(r *wirev1.Subscribe, resumed bool) bool {
	start := r.GetStart()
	if start == wirev1.Start_START_SESSION {
		return false // missed says it all
	}
	return resumed || start == wirev1.Start_START_AFTER_SEQ || len(r.GetPositions()) > 0
}

// WantsLog reports whether it asks for what only durable topics have. A position that was not
// recovered is told anyway.
func WantsLog(r *wirev1.Subscribe) bool {
	switch r.GetStart() {
	case wirev1.Start_START_EARLIEST, wirev1.Start_START_LAST_N, wirev1.Start_START_SESSION:
		return true
	}
	return r.GetAck() && r.GetGroup() == ""
}

// At is the position in a topic before the first message that it asks for, where its log has come
// to head, and the position's epoch where it names one.
func At(r *wirev1.Subscribe, topic string, head uint64) (epoch, seq uint64) {
	for _, p := range r.GetPositions() {
		if p.GetTopic() == topic {
			return p.GetEpoch(), p.GetSeq()
		}
	}
	switch r.GetStart() {
	case wirev1.Start_START_EARLIEST, wirev1.Start_START_SESSION:
		return 0, 0
	case wirev1.Start_START_AFTER_SEQ:
		return r.GetEpoch(), r.GetSeq()
	case wirev1.Start_START_LAST_N:
		return 0, head - min(head, r.GetSeq())
	}
	return 0, head
}
