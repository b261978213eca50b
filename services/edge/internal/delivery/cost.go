package delivery

// Some of what the hub does for one frame, event, timer or delivery is a walk: over a queue, a
// window, the subscriptions of a connection. Each walk is bounded by a limit of the connection, and
// looked says how long it was; whoever cut the work into slices asks toll what that came to, so
// that many such walks end a slice as many deliveries do.

// looksAsOne is how many items of a walk take about as long as one delivery.
const looksAsOne = 16

// looked notes a walk over n items.
func (h *Hub) looked(n int) { h.looks += uint32(n) }

// toll is what the walks since it was asked last count for, in deliveries.
func (h *Hub) toll() int {
	if h.looks < looksAsOne {
		return 0
	}
	n := h.looks / looksAsOne
	h.looks %= looksAsOne
	return int(n)
}
