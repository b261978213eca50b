package wire

import "google.golang.org/protobuf/encoding/protowire"

// meshField is Message.mesh, what tiers tell each other of a message beside what subscribers get.
const meshField protowire.Number = 14

// Cut parts a body into what subscribers get and its field mesh, nil where it has none. Both are
// parts of body: Body puts the field last. Where others have put it elsewhere or twice, shared is a
// copy and mesh the last. What is behind a malformed field stays as it is.
func Cut(body []byte) (shared, mesh []byte) {
	for at := 0; at < len(body); {
		num, typ, n := protowire.ConsumeTag(body[at:])
		if n < 0 {
			return body, nil
		}
		value := protowire.ConsumeFieldValue(num, typ, body[at+n:])
		if value < 0 {
			return body, nil
		}
		if num == meshField && typ == protowire.BytesType {
			if end := at + n + value; end < len(body) {
				return cutAll(body)
			}
			mesh, _ = protowire.ConsumeBytes(body[at+n:])
			return body[:at:at], mesh
		}
		at += n + value
	}
	return body, nil
}

// cutAll copies what is not the field.
func cutAll(body []byte) (shared, mesh []byte) {
	shared = make([]byte, 0, len(body))
	for rest := body; len(rest) > 0; {
		num, typ, n := protowire.ConsumeTag(rest)
		value := -1
		if n >= 0 {
			value = protowire.ConsumeFieldValue(num, typ, rest[n:])
		}
		if value < 0 {
			return append(shared, rest...), mesh
		}
		if num == meshField && typ == protowire.BytesType {
			mesh, _ = protowire.ConsumeBytes(rest[n:])
		} else {
			shared = append(shared, rest[:n+value]...)
		}
		rest = rest[n+value:]
	}
	return shared, mesh
}
