// Package uuid reads and writes ids of 16 bytes as text.
package uuid

import "encoding/hex"

// Append appends an id as UUIDs are written.
func Append(b []byte, id [16]byte) []byte {
	for i, part := range [...][]byte{id[:4], id[4:6], id[6:8], id[8:10], id[10:]} {
		if i > 0 {
			b = append(b, '-')
		}
		b = hex.AppendEncode(b, part)
	}
	return b
}

// Parse reads what Append writes, with its hyphens or without; false: it is none.
func Parse(text string) (id [16]byte, ok bool) {
	var digits []byte
	for i := range len(text) {
		switch {
		case text[i] != '-':
			digits = append(digits, text[i])
		case len(text) != 36 || i != 8 && i != 13 && i != 18 && i != 23:
			return id, false
		}
	}
	if len(digits) != 2*len(id) {
		return id, false
	}
	if _, err := hex.Decode(id[:], digits); err != nil {
		return [16]byte{}, false
	}
	return id, true
}
