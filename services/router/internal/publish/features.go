package publish

import (
	"math"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Bounds of what the mesh filters and ranks a message by.
const (
	maxFeatures    = 64
	maxFeatureName = 64 // bytes
	maxVector      = 4096
)

// checkFeatures refuses features that are too many, too long, or no numbers.
func checkFeatures(m *pushmeshv1.PublishRequest) error {
	if n := len(m.GetFeatures()); n > maxFeatures {
		return invalid("%d features, at most %d", n, maxFeatures)
	}
	for name, v := range m.GetFeatures() {
		switch {
		case name == "" || len(name) > maxFeatureName || !utf8.ValidString(name):
			return invalid("feature %q: a name is UTF-8 and has 1 to %d bytes", name, maxFeatureName)
		case math.IsNaN(v) || math.IsInf(v, 0):
			return invalid("feature %q is %v, it must be finite", name, v)
		}
	}
	if n := len(m.GetVector()); n > maxVector {
		return invalid("vector has %d dimensions, at most %d", n, maxVector)
	}
	for i, v := range m.GetVector() {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return invalid("vector has %v at %d, it must be finite", v, i)
		}
	}
	return nil
}

// encodeFeatures makes Message.mesh; nil where there is nothing for it. Equal features have equal bytes.
func encodeFeatures(m *pushmeshv1.PublishRequest) ([]byte, error) {
	if len(m.GetFeatures()) == 0 && len(m.GetVector()) == 0 {
		return nil, nil
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(&meshv1.MessageFeatures{Features: m.GetFeatures(), Vector: m.GetVector()})
}
