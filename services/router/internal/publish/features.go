package publish

import (
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/features"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// checkFeatures refuses features that are too many, too long, or no numbers.
func checkFeatures(m *pushmeshv1.PublishRequest) error {
	if err := features.Check(m.GetFeatures(), m.GetVector(), features.MessageDimensions); err != nil {
		return invalid("%v", err)
	}
	return nil
}

// encodeFeatures makes Message.mesh; nil where there is nothing for it. Equal features have equal
// bytes.
func encodeFeatures(m *pushmeshv1.PublishRequest) ([]byte, error) {
	if len(m.GetFeatures()) == 0 && len(m.GetVector()) == 0 {
		return nil, nil
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(&meshv1.MessageFeatures{Features: m.GetFeatures(), Vector: m.GetVector()})
}
