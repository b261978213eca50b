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
func encodeFeatures(m *Message) ([]byte, error) {
	f := &meshv1.MessageFeatures{Features: m.Request.GetFeatures(), Vector: m.Request.GetVector(), Origin: m.Origin}
	if len(f.GetFeatures()) == 0 && len(f.GetVector()) == 0 && f.GetOrigin() == 0 {
		return nil, nil
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(f)
}
