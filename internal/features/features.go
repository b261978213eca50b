// Package features bounds what messages and subscribers are ranked by: numbers that have names, and
// a vector.
package features

import (
	"fmt"
	"math"
	"unicode/utf8"
)

const (
	// Most features of a message or a profile.
	Most = 64
	// LongestName in bytes.
	LongestName = 64
	// MessageDimensions of a message's vector, at most.
	MessageDimensions = 4096
	// ProfileDimensions of a profile's vector, at most: 2 KiB, which leaves half of a Hello to the
	// rest.
	ProfileDimensions = 512
)

// Check says what is wrong with features and a vector of at most so many dimensions: too many, a
// name that is none, a value that is no finite number.
func Check(features map[string]float64, vector []float32, dimensions int) error {
	if n := len(features); n > Most {
		return fmt.Errorf("%d features, at most %d", n, Most)
	}
	for name, v := range features {
		switch {
		case name == "" || len(name) > LongestName || !utf8.ValidString(name):
			return fmt.Errorf("feature %q: a name is UTF-8 and has 1 to %d bytes", name, LongestName)
		case math.IsNaN(v) || math.IsInf(v, 0):
			return fmt.Errorf("feature %q is %v, it must be finite", name, v)
		}
	}
	if n := len(vector); n > dimensions {
		return fmt.Errorf("vector has %d dimensions, at most %d", n, dimensions)
	}
	for i, v := range vector {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return fmt.Errorf("vector has %v at %d, it must be finite", v, i)
		}
	}
	return nil
}
