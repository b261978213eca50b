package unacked

const (
	// KeptEntries is how many entries a window may have room for to be used again.
	KeptEntries = 64
	// KeptWindows is how many windows are kept that nobody uses.
	KeptWindows = 16 << 10
)

// Pool keeps windows that no position uses. The zero value is ready.
type Pool struct{ free []*Window }

// Take is an empty window.
func (p *Pool) Take() *Window {
	n := len(p.free)
	if n == 0 {
		return &Window{}
	}
	w := p.free[n-1]
	p.free = p.free[:n-1]
	return w
}

// Give takes an empty window back. Large ones are left to the collector.
func (p *Pool) Give(w *Window) {
	if cap(w.entries) <= KeptEntries && len(p.free) < KeptWindows {
		w.parked, w.Fetching, w.Failing = nil, false, false
		p.free = append(p.free, w)
	}
}
