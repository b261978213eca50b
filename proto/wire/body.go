package wire

import (
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

var errNotUTF8 = errors.New("wire: encode Message: a string is not UTF-8")

// Body encodes what all subscribers of a message share, without topic and seq. It fails only where
// a string is not UTF-8.
//
// The bytes are those of the generated code (deterministic: fields by number, headers by key),
// which a property test holds it to. By hand it is one allocation and a quarter of the time, see
// docs/adr/0005-message-frame.md. m is not kept.
func Body(m *wirev1.Message) ([]byte, error) {
	var few [8]header // most messages have no more, and these need no allocation
	headers := sorted(few[:0], m.GetHeaders())
	if !valid(headers) || !utf8.ValidString(m.GetTraceparent()) || !utf8.ValidString(m.GetFrom()) {
		return nil, errNotUTF8
	}
	dst := make([]byte, 0, sizeBody(m, headers))
	dst = appendBytes(dst, 3, m.GetPayload())
	dst = appendFixed64(dst, 4, m.GetPublishedAt())
	dst = appendBytes(dst, 5, m.GetId())
	dst = appendHeaders(dst, headers)
	if p := m.GetPriority(); p > 0 {
		dst = protowire.AppendTag(dst, 8, protowire.VarintType)
		dst = protowire.AppendVarint(dst, uint64(p))
	}
	dst = appendBytes(dst, 9, m.GetTraceparent())
	dst = appendBytes(dst, 13, m.GetFrom())
	return appendBytes(dst, 14, m.GetMesh()), nil
}

type header struct{ key, value string }

// sorted appends the headers by key, so that equal messages have equal bytes; the map is walked
// only here.
func sorted(dst []header, headers map[string]string) []header {
	for k, v := range headers {
		dst = append(dst, header{k, v})
	}
	if len(dst) > 1 {
		slices.SortFunc(dst, func(a, b header) int { return strings.Compare(a.key, b.key) })
	}
	return dst
}

func valid(headers []header) bool {
	for _, h := range headers {
		if !utf8.ValidString(h.key) || !utf8.ValidString(h.value) {
			return false
		}
	}
	return true
}

// tagSize is that of every field of a Message, their numbers being below 16.
const tagSize = 1

func sizeBody(m *wirev1.Message, headers []header) int {
	n := sizeBytes(len(m.GetPayload())) + sizeBytes(len(m.GetId())) + sizeBytes(len(m.GetTraceparent())) + sizeBytes(len(m.GetFrom())) +
		sizeBytes(len(m.GetMesh()))
	if m.GetPublishedAt() > 0 {
		n += tagSize + protowire.SizeFixed64()
	}
	if p := m.GetPriority(); p > 0 {
		n += tagSize + protowire.SizeVarint(uint64(p))
	}
	for _, h := range headers {
		n += tagSize + protowire.SizeBytes(h.size())
	}
	return n
}

func sizeBytes(n int) int {
	if n == 0 {
		return 0
	}
	return tagSize + protowire.SizeBytes(n)
}

// size is that of the header's entry: key and value are there even where they are empty.
func (h header) size() int {
	return 2*tagSize + protowire.SizeBytes(len(h.key)) + protowire.SizeBytes(len(h.value))
}

func appendBytes[T string | []byte](dst []byte, num protowire.Number, v T) []byte {
	if len(v) == 0 {
		return dst
	}
	dst = protowire.AppendTag(dst, num, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(len(v)))
	return append(dst, v...)
}

func appendFixed64(dst []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return dst
	}
	return protowire.AppendFixed64(protowire.AppendTag(dst, num, protowire.Fixed64Type), v)
}

func appendHeaders(dst []byte, headers []header) []byte {
	for _, h := range headers {
		dst = protowire.AppendTag(dst, 6, protowire.BytesType)
		dst = protowire.AppendVarint(dst, uint64(h.size()))
		dst = protowire.AppendTag(dst, 1, protowire.BytesType)
		dst = protowire.AppendString(dst, h.key)
		dst = protowire.AppendTag(dst, 2, protowire.BytesType)
		dst = protowire.AppendString(dst, h.value)
	}
	return dst
}
