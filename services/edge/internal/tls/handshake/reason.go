package handshake

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Alerts of TLS, RFC 8446, section 6.
const (
	alertHandshakeFailure      = 40
	alertProtocolVersion       = 70
	alertInsufficientSecurity  = 71
	alertInternalError         = 80
	alertInappropriateFallback = 86
	alertUnrecognizedName      = 112
	alertNoApplicationProtocol = 120
)

// Overloaded is what a client is told whose handshake is refused: there is no alert that says more,
// and no way to say when to come back.
func Overloaded() []byte { return alert(alertInternalError) }

// alert is a fatal one, in the clear.
func alert(why byte) []byte { return []byte{recordAlert, 3, 3, 0, 2, 2, why} }

const recordAlert = 21

// alertIn is the alert that sent ends with, where it is in the clear; 0: none.
func alertIn(sent []byte) byte {
	const size = 7
	if len(sent) < size {
		return 0
	}
	if last := sent[len(sent)-size:]; last[0] == recordAlert && last[1] == 3 && last[3] == 0 && last[4] == 2 {
		return last[6]
	}
	return 0
}

// reason of a handshake that failed, as the closed list of codes has it. sent is what the edge
// answered.
func reason(err error, sent []byte) (why wirev1.Code, text string) {
	var unverified *tls.CertificateVerificationError
	var remote *net.OpError
	switch {
	case errors.Is(err, errGaveWay):
		return wirev1.Code_CODE_OVERLOADED, "too many handshakes are under way"
	case errors.Is(err, errPanicked):
		return wirev1.Code_CODE_INTERNAL, err.Error()
	case errors.As(err, &unverified), strings.HasSuffix(err.Error(), "didn't provide a certificate"):
		// crypto/tls has no type for it
		return wirev1.Code_CODE_UNAUTHENTICATED, err.Error()
	case errors.As(err, &remote) && remote.Op == "remote error":
		return wirev1.Code_CODE_OK, err.Error()
	}
	switch alertIn(sent) {
	case alertHandshakeFailure, alertProtocolVersion, alertInsufficientSecurity, alertInappropriateFallback, alertUnrecognizedName, alertNoApplicationProtocol:
		return wirev1.Code_CODE_UNSUPPORTED, err.Error()
	}
	return wirev1.Code_CODE_BAD_FRAME, err.Error()
}
