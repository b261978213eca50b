package feed

import "sync/atomic"

// Stats may be read at any time.
type Stats struct {
	// Topics that have a state now.
	Topics atomic.Int64
	// Unwanted deliveries: no loop wants the topic any more.
	Unwanted atomic.Uint64
	// Duplicates came before; Old ones belong to an epoch that is gone.
	Duplicates, Old atomic.Uint64
	// Epochs that began under a topic's subscribers.
	Epochs atomic.Uint64
	// HeldDropped messages were ahead of a hole and beyond the bounds: they are read from the log.
	HeldDropped atomic.Uint64
	// Holes that led to a read, messages Repaired by these, and ReadErrors.
	Holes, Repaired, ReadErrors atomic.Uint64
	// Phantoms were announced and are not in the log.
	Phantoms atomic.Uint64
	// RingReads were answered from recent messages.
	RingReads atomic.Uint64
}
