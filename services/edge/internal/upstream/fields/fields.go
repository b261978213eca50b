// Package fields walks over encoded protobuf messages, for those who want little of them.
package fields

import "google.golang.org/protobuf/encoding/protowire"

// Each calls f for every field of a message, up to one that is malformed. value is what a field of
// bytes contains, and of other types the value as it is encoded.
func Each(b []byte, f func(num protowire.Number, typ protowire.Type, value []byte)) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		b = b[n:]
		if typ == protowire.BytesType {
			value, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return
			}
			f(num, typ, value)
			b = b[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return
		}
		f(num, typ, b[:n])
		b = b[n:]
	}
}

// Entry of a map from strings to values of a type: its key, and its value as Each has it; nil where
// it has none.
func Entry(b []byte, of protowire.Type) (key, value []byte) {
	Each(b, func(num protowire.Number, typ protowire.Type, v []byte) {
		switch {
		case num == 1 && typ == protowire.BytesType:
			key = v
		case num == 2 && typ == of:
			value = v
		}
	})
	return key, value
}
