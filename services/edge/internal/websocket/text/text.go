// Package text is the codec of the subprotocol pushmesh.v1.json: the frames of the push protocol as
// protobuf JSON, one in a text message. It knows no sockets and no clock.
//
// A frame is an object with one member, named after the frame. Both directions walk tables that are
// made of the schema once, and go from one encoding to the other without messages in between: what
// is allocated is the growth of dst alone.
package text

import (
	"errors"
	"math"
	"strconv"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// Frames that can't be written as JSON.
var (
	ErrMalformed = errors.New("text: the frame can't be decoded")
	ErrNotUTF8   = errors.New("text: a string of the frame is not UTF-8")
)

// AppendFrame appends a whole native frame as JSON. Fields that the schema does not have, and what
// only tiers tell each other, are left out.
func AppendFrame(dst, frame []byte) ([]byte, error) {
	f, body := opened(frame)
	if f == nil {
		return dst, ErrMalformed
	}
	out, err := f.append(append(dst, f.beginning...), body, f.fields)
	if err != nil {
		return dst, err
	}
	return append(out, "}}"...), nil
}

// AppendMessage appends what all subscribers of a Message share, open at its end for AppendTail:
// body is that of a frame as wire.AppendMessage makes it. What differs between subscribers is left
// out where it has it.
func AppendMessage(dst, body []byte) ([]byte, error) {
	out, err := messageFrame.append(append(dst, messageFrame.beginning...), body, messageFrame.fields[:sharedFields])
	if err != nil {
		return dst, err
	}
	return out, nil
}

// AppendTail appends what a subscriber gets beside what AppendMessage has made, and ends the frame:
// the JSON of wire.AppendTail and wire.AppendUnranked.
func AppendTail(dst []byte, attempt uint32, score float64, unranked bool, subs []uint32) []byte {
	if attempt > 0 {
		dst = strconv.AppendUint(append(dst, `,"attempt":`...), uint64(attempt), 10)
	}
	if score != 0 {
		dst = appendFloat(append(dst, `,"score":`...), score, 64)
	}
	if len(subs) > 0 {
		dst = append(dst, `,"subs":[`...)
		for i, s := range subs {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendUint(dst, uint64(s), 10)
		}
		dst = append(dst, ']')
	}
	if unranked {
		dst = append(dst, `,"unranked":true`...)
	}
	return append(dst, "}}"...)
}

// opened is what a native frame is, and its body; nil where it is none, or not whole.
func opened(b []byte) (*frame, []byte) {
	n, t, ok := wire.Header(b)
	if !ok || n != len(b)-wire.HeaderSize || int(t) >= len(byType) {
		return nil, nil
	}
	return byType[t], b[wire.HeaderSize:]
}

// appendFloat appends a number as protobuf JSON has it.
func appendFloat(dst []byte, v float64, bits int) []byte {
	switch {
	case math.IsNaN(v):
		return append(dst, `"NaN"`...)
	case math.IsInf(v, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(v, -1):
		return append(dst, `"-Infinity"`...)
	}
	form, size := byte('f'), math.Abs(v)
	if bits == 32 && size != 0 && (float32(size) < 1e-6 || float32(size) >= 1e21) || bits == 64 && size != 0 && (size < 1e-6 || size >= 1e21) {
		form = 'e'
	}
	dst = strconv.AppendFloat(dst, v, form, -1, bits)
	if n := len(dst); form == 'e' && dst[n-4] == 'e' && dst[n-3] == '-' && dst[n-2] == '0' {
		// e-09 is e-9
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}

// messageFrame is that of Message, and sharedFields how many of its fields come before those of
// AppendTail.
var (
	messageFrame = byType[wirev1.FrameType_FRAME_TYPE_MESSAGE]
	sharedFields = messageFrame.before("attempt")
)
