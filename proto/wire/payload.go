package wire

import "google.golang.org/protobuf/encoding/protowire"

// payloadField is the payload of a Message. Body writes it first, and leaves it out where there is
// none.
const payloadField protowire.Number = 3

// HasPayload reports whether an encoded body has a payload that is not empty. A body that can't be
// decoded counts as one that has.
func HasPayload(body []byte) bool {
	for len(body) > 0 {
		num, typ, n := protowire.ConsumeTag(body)
		if n < 0 {
			return true
		}
		body = body[n:]
		if num == payloadField && typ == protowire.BytesType {
			v, n := protowire.ConsumeBytes(body)
			if n < 0 || len(v) > 0 {
				return true
			}
		}
		if n = protowire.ConsumeFieldValue(num, typ, body); n < 0 {
			return true
		}
		body = body[n:]
	}
	return false
}
