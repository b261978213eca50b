// Package ballast keeps the garbage collector of a small heap from running all the time.
//
// The collector runs each time the heap has doubled. A process that holds 20 MB and allocates 200
// MB a second would collect ten times a second, for a quarter of its CPU. Ballast counts as heap
// that is in use, so that the next run is later by its size. It is never written to: no memory of
// the machine lies behind it. What garbage may gather meanwhile does cost memory, as much as the
// ballast at most; a large heap is not made larger in proportion, as a higher GOGC would.
package ballast

import "golang.org/x/sys/unix"

// Size of the ballast of a tier that works for throughput.
const Size = 128 << 20

// Ballast is held for as long as it should count.
type Ballast []byte

// New takes ballast of n bytes, in whole pages.
func New(n int) Ballast {
	b := make(Ballast, n)
	b.giveBack()
	return b
}

// giveBack the memory behind b. The runtime writes zeros to all of b where it had used a part of
// its addresses before, which has the system put memory there. What is read from it later is zeros,
// too. If the system refuses, ballast costs memory, and works.
func (b Ballast) giveBack() { _ = unix.Madvise(b, unix.MADV_DONTNEED) }
