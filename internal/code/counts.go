package code

import "github.com/pushmesh/pushmesh/proto/gen/wirev1"

// MaxCodes is the room of Counts.
const MaxCodes = 64

// Counts counts by code.
type Counts [MaxCodes]uint64

// Add counts n more; a code beyond the room is not counted.
func (c *Counts) Add(of wirev1.Code, n uint64) {
	if of >= 0 && of < MaxCodes {
		c[of] += n
	}
}
