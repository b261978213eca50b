package revocation

import "hash/maphash"

// Key stands for an issuer and a jti in this process; 0: the token has no jti. It is 64 bits of a
// hash that nobody outside can foresee, so that a connection need not have the names: that two of
// 100,000 tokens of one process have the same key happens once in four thousand million processes.
type Key uint64

// seed makes keys of one process, and of no other.
var seed = maphash.MakeSeed()

// KeyOf is the key of a token.
func KeyOf(issuer, tokenID string) Key {
	if tokenID == "" {
		return 0
	}
	var h maphash.Hash
	h.SetSeed(seed)
	h.WriteString(issuer)
	h.WriteByte(0)
	h.WriteString(tokenID)
	return Key(max(h.Sum64(), 1))
}
