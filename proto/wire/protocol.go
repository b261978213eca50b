package wire

import "github.com/pushmesh/pushmesh/proto/gen/wirev1"

// ALPN names this protocol to TLS. A client with TLS that names others alone is refused; one that
// names none is not.
const ALPN = "pushmesh/1"

// Protocol is what a connection speaks, told by its first byte.
type Protocol uint8

// The protocols that can share one listener.
const (
	Unknown Protocol = iota
	Push
	MQTT
	TLS
	WebSocket
	ProxyV1
	ProxyV2
)

// Detect tells the protocol from the first bytes of a connection. For Push four bytes are looked
// at: the first frame must be a Hello, which may be above MaxHello. more is true where b is too
// short to tell.
func Detect(b []byte) (p Protocol, more bool) {
	if len(b) == 0 {
		return Unknown, true
	}
	switch b[0] {
	case 0x00:
		_, t, ok := Header(b)
		if !ok {
			return Push, true
		}
		if t != wirev1.FrameType_FRAME_TYPE_HELLO {
			return Unknown, false
		}
		return Push, false
	case 0x10:
		return MQTT, false
	case 0x16:
		return TLS, false
	case 'G':
		return WebSocket, false
	case 'P':
		return ProxyV1, false
	case 0x0d:
		return ProxyV2, false
	}
	return Unknown, false
}
