package promise

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
)

// maxPayload of the checker's messages, in bytes.
const maxPayload = 2000

// payload of a message: its id, then bytes that only this id has, up to some 2,000.
func payload(id uint64) []byte {
	r := rand.New(rand.NewPCG(id, 0x70757368)) // #nosec G404 -- must be the same every time
	b := make([]byte, 8, 8+maxPayload)
	binary.BigEndian.PutUint64(b, id)
	// Most are small, as messages are.
	n := r.IntN(200)
	if n < 5 {
		n = r.IntN(maxPayload)
	}
	for range n {
		b = append(b, byte(r.Uint32()))
	}
	return b
}

// identify says which id a payload belongs to, and whether all of it is as it was.
func identify(b []byte) (id uint64, intact bool) {
	if len(b) < 8 {
		return 0, false
	}
	id = binary.BigEndian.Uint64(b)
	return id, bytes.Equal(b, payload(id))
}
