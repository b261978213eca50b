// Package wire frames the subscriber protocol: a 3-byte big-endian body length, one
// type byte, and a body of one protobuf message of pushmesh.wire.v1.
package wire

import (
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Sizes of the protocol, in bytes.
const (
	HeaderSize      = 4
	MaxBody         = 1<<24 - 1
	MaxHello        = 12 << 10
	DefaultMaxFrame = 1 << 20
)

// Version of the protocol that Hello and Welcome name.
const Version = 1

// ErrTooLarge says that a body is longer than allowed; trying again can't help.
var ErrTooLarge = errors.New("wire: frame too large")

// Header reads the length of the body and the type of the frame that b begins with.
// ok is false where b holds less than HeaderSize bytes.
func Header(b []byte) (n int, t wirev1.FrameType, ok bool) {
	if len(b) < HeaderSize {
		return 0, 0, false
	}
	return int(b[0])<<16 | int(b[1])<<8 | int(b[2]), wirev1.FrameType(b[3]), true
}

// PutHeader writes the header of a body of n bytes into the first HeaderSize bytes of b.
func PutHeader(b []byte, n int, t wirev1.FrameType) {
	b[0], b[1], b[2], b[3] = byte(n>>16), byte(n>>8), byte(n), byte(t)
}

// Append appends the frame of m to dst. It fails only where m can't be encoded
// (a string that is not UTF-8) or its body exceeds MaxBody.
func Append(dst []byte, t wirev1.FrameType, m proto.Message) ([]byte, error) {
	at := len(dst)
	out, err := proto.MarshalOptions{}.MarshalAppend(append(dst, 0, 0, 0, byte(t)), m)
	if err != nil {
		return dst, fmt.Errorf("wire: encode %v: %w", t, err)
	}
	n := len(out) - at - HeaderSize
	if n > MaxBody {
		return dst, ErrTooLarge
	}
	PutHeader(out[at:], n, t)
	return out, nil
}

// Read reads one frame from r. buf is reused when it is large enough; the body returned is
// valid until the next use of buf. A body above limit is ErrTooLarge and is left unread.
func Read(r io.Reader, buf []byte, limit int) (t wirev1.FrameType, body []byte, err error) {
	var head [HeaderSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n, t, _ := Header(head[:])
	if n > limit {
		return t, nil, ErrTooLarge
	}
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	body = buf[:n]
	if _, err := io.ReadFull(r, body); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return t, nil, err
	}
	return t, body, nil
}
