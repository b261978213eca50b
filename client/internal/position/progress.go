package position

import "github.com/pushmesh/pushmesh/proto/gen/wirev1"

// Lost reports whether a reason means that a message was not delivered though it was wanted. A log
// that began anew is told by the restart of its cursor: of a topic of which nothing was had, it is
// the first word of its epoch.
func Lost(c wirev1.Code) bool {
	switch c {
	case wirev1.Code_CODE_OK, wirev1.Code_CODE_EPOCH_CHANGED, wirev1.Code_CODE_FILTERED, wirev1.Code_CODE_NOT_YOURS, wirev1.Code_CODE_CONFLATED,
		wirev1.Code_CODE_RANKED_OUT, wirev1.Code_CODE_EXPIRED:
		return false
	}
	return true
}

// Missed is how many seqs a Progress names.
func Missed(p *wirev1.Progress) uint64 {
	if p.GetTo() == 0 || p.GetTo() < p.GetFrom() {
		return 0
	}
	return p.GetTo() - max(p.GetFrom(), 1) + 1
}
