// Package ballast keeps the garbage collector of a small heap from running all the time.
//
// The collector runs each time the heap has doubled. A process that holds 20 MB and allocates 200 MB a second would collect ten times a
// second, for a quarter of its CPU. Ballast counts as heap that is in use, so that the next run is later by its size. It is
// never written to: no memory of the machine lies behind it. What garbage may gather meanwhile does cost memory, as much as the
// ballast at most; a large heap is not made larger in proportion, as a higher GOGC would.
package ballast

// Size of the ballast of a tier that works for throughput.
const Size = 128 << 20

// Ballast is held for as long as it should count.
type Ballast []byte

// New takes ballast of n bytes.
func New(n int) Ballast { return make(Ballast, n) }
