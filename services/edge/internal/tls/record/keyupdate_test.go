package record

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"
)

// hand seals a client's records by hand, for crypto/tls sends no KeyUpdate: RFC 8446, sections 5.2
// and 7.2, for TLS_AES_128_GCM_SHA256.
type hand struct {
	t      *testing.T
	secret []byte
	seq    uint64
}

func (h *hand) expand(secret []byte, label string, n int) []byte {
	label = "tls13 " + label
	info := append([]byte{byte(n >> 8), byte(n), byte(len(label))}, label...)
	out, err := hkdf.Expand(sha256.New, secret, string(append(info, 0)), n)
	if err != nil {
		h.t.Fatal(err)
	}
	return out
}

func (h *hand) seal(kind byte, text []byte) []byte {
	block, err := aes.NewCipher(h.expand(h.secret, "key", 16))
	if err != nil {
		h.t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		h.t.Fatal(err)
	}
	nonce := h.expand(h.secret, "iv", 12)
	binary.BigEndian.PutUint64(nonce[4:], binary.BigEndian.Uint64(nonce[4:])^h.seq)
	h.seq++
	n := len(text) + 1 + aead.Overhead()
	head := []byte{23, 3, 3, byte(n >> 8), byte(n)}
	return aead.Seal(bytes.Clone(head), nonce, append(bytes.Clone(text), kind), head)
}

// update makes a KeyUpdate, in pieces of up to so many bytes, and goes on with the next secret.
func (h *hand) update(wanted byte, most int) (records [][]byte) {
	message := []byte{24, 0, 0, 1, wanted}
	for ; len(message) > 0; message = message[min(most, len(message)):] {
		records = append(records, h.seal(22, message[:min(most, len(message))]))
	}
	h.secret, h.seq = h.expand(h.secret, "traffic upd", sha256.Size), 0
	return records
}

func TestKeyUpdate(t *testing.T) {
	var log bytes.Buffer
	e := shakeWith(t, certificate(t), tls.VersionTLS13, &log)
	if suite := e.server.State().CipherSuite; suite != tls.TLS_AES_128_GCM_SHA256 {
		t.Fatalf("suite %x: the test is for another", suite)
	}
	h := &hand{t: t}
	for line := range strings.Lines(log.String()) {
		if parts := strings.Fields(line); parts[0] == "CLIENT_TRAFFIC_SECRET_0" {
			h.secret, _ = hex.DecodeString(parts[2])
		}
	}
	open := func(records ...[]byte) (text []byte, err error) {
		for _, r := range records {
			var n int
			if n, e.wire.down, err = e.server.Open(e.plain[:], r, e.wire.down); err != nil {
				return text, err
			}
			text = append(text, e.plain[:n]...)
		}
		return text, nil
	}
	for i, most := range []int{5, 2, 1} { // the message torn over records too
		if _, err := open(h.update(1, most)...); err != nil {
			t.Fatal(err)
		}
		if len(e.wire.down) == 0 {
			t.Fatal("the edge has not changed its key")
		}
		if got, err := open(h.seal(23, []byte("up"))); err != nil || string(got) != "up" {
			t.Fatalf("update %d: got %q, %v", i, got, err)
		}
		if got := e.down([]byte("down")); string(got) != "down" {
			t.Fatalf("update %d: the client got %q", i, got)
		}
	}
	var err error
	for n := 0; err == nil; n++ {
		if n > 100 {
			t.Fatal("a client may change its key without end")
		}
		_, err = open(h.update(0, 5)...)
	}
}
