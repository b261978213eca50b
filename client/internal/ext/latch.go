package ext

// Latch is a channel that is closed once.
type Latch chan struct{}

// IsOpen reports whether the channel is closed.
func (l Latch) IsOpen() bool {
	select {
	case <-l:
		return true
	default:
		return false
	}
}

// Open closes the channel, if it is not yet. Callers hold the lock that guards the latch.
func (l Latch) Open() {
	if !l.IsOpen() {
		close(l)
	}
}
