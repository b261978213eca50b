package identity

import (
	"crypto/sha256"
	"encoding/binary"
)

// Origin tells the messages of one client from those of others: a client id of a user, or of nobody
// where user is "". It is the same in the whole mesh, and never 0; two clients have the same once
// in 2^64.
func Origin(user, clientID string) uint64 {
	b := binary.AppendUvarint(nil, uint64(len(user)))
	b = append(append(b, user...), clientID...)
	sum := sha256.Sum256(b)
	return max(binary.LittleEndian.Uint64(sum[:]), 1)
}
