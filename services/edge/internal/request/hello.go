package request

import (
	"encoding/hex"
	"math/rand/v2"
	"slices"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/features"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

const (
	maxClientID = 64
	maxSession  = 255

	// heartbeats, in milliseconds
	minHeartbeat     = 1000
	maxHeartbeat     = 600_000
	defaultHeartbeat = 30_000
)

// MaxWindow is the largest receive window.
const MaxWindow = 65_536

// Settle puts in what a good Hello leaves to the edge, and bounds what it asks for. window is the
// one of clients that name none.
func Settle(m *wirev1.Hello, window uint32) {
	if m.GetClientId() == "" {
		var b [8]byte
		for i, v := 0, rand.Uint64(); i < len(b); i, v = i+1, v>>8 {
			b[i] = byte(v)
		}
		m.ClientId = "c-" + hex.EncodeToString(b[:])
	}
	m.HeartbeatMs = clamp(m.GetHeartbeatMs(), minHeartbeat, maxHeartbeat, defaultHeartbeat)
	m.ReceiveWindow = clamp(m.GetReceiveWindow(), 1, MaxWindow, window)
}

func clamp(v, low, high, otherwise uint32) uint32 {
	if v == 0 {
		return otherwise
	}
	return min(max(v, low), high)
}

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
	}
	if err := features.Check(m.GetProfile(), m.GetProfileVector(), features.ProfileDimensions); err != nil {
		return invalid("profile: " + err.Error())
	}
	return nil
}

// mostFeatures of a Hello are looked at.
const mostFeatures = 64

// Wants reports whether a client knows a feature that the edge has for those that ask for it.
func Wants(m *wirev1.Hello, feature string) bool {
	all := m.GetFeatures()
	return slices.Contains(all[:min(len(all), mostFeatures)], feature)
}
