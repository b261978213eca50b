package request

import (
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/features"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

const (
	maxClientID = 64
	maxSession  = 255
)

// Hello checks a Hello.
func Hello(m *wirev1.Hello) *code.Error {
	switch {
	case m.GetVersion() != wire.Version:
		return unsupported("this edge supports version 1 of the protocol only")
	case len(m.GetClientId()) > maxClientID:
		return invalid("client_id is longer than 64 bytes")
	case len(m.GetSession()) > maxSession:
		return invalid("session is longer than 255 bytes")
	case HasControl(m.GetClientId()) || HasControl(m.GetSession()):
		return invalid("client_id and session must not contain control characters")
	case m.GetToken() != "":
		return unsupported("tokens are not supported: token must be empty")
	}
	if err := features.Check(m.GetProfile(), m.GetProfileVector(), features.ProfileDimensions); err != nil {
		return invalid("profile: " + err.Error())
	}
	return nil
}
