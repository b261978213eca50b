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
	"errors"
	"strings"
	"testing"
)

// hand seals a client's records by hand, for crypto/tls sends no KeyUpdate: RFC 8446, sections 5.2
// and 7.2, for TLS_AES_128_GCM_SHA256.
type hand struct {
	t      testing.TB
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

func (h *hand) seal(kind byte, text []byte) []byte { return h.sealPadded(kind, text, 0) }

// sealPadded makes a record with so many bytes of padding.
func (h *hand) sealPadded(kind byte, text []byte, padding int) []byte {
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
	inner := append(append(bytes.Clone(text), kind), make([]byte, padding)...)
	n := len(inner) + aead.Overhead()
	head := []byte{23, 3, 3, byte(n >> 8), byte(n)}
	return aead.Seal(bytes.Clone(head), nonce, inner, head)
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

// updating shakes hands over TLS 1.3, and gives what seals further records of the client by hand.
func updating(t testing.TB) (*ends, *hand) {
	t.Helper()
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
	return e, h
}

func TestKeyUpdate(t *testing.T) {
	e, h := updating(t)
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

// A message of a handshake that never comes whole is kept by crypto/tls: what it is sent of one is
// bounded.
func TestRecordsWithoutDataAreBounded(t *testing.T) {
	e, h := updating(t)
	part := append([]byte{24, 0, 0xff, 0xff}, make([]byte, 996)...) // of 65,535 bytes
	for n := 0; ; n += len(part) {
		if n > maxWithoutData {
			t.Fatalf("%d bytes are kept", n)
		}
		got, _, err := e.server.Open(e.plain[:], h.seal(22, part), nil)
		if got != 0 {
			t.Fatalf("%d bytes of data", got)
		}
		if err != nil {
			if n == 0 {
				t.Fatal(err)
			}
			return
		}
		part = part[:996]
	}
}

// A client may pad each record to its full length (RFC 8446, section 5.4), and send one that is
// padding alone, or a KeyUpdate, before its data. What holds no data without end is refused.
func TestPaddedRecords(t *testing.T) {
	e, h := updating(t)
	open := func(r []byte) (string, error) {
		n, _, err := e.server.Open(e.plain[:], r, nil)
		return string(e.plain[:n]), err
	}
	for i := range 10 {
		for _, r := range [][]byte{h.update(0, 5)[0], h.sealPadded(23, nil, MaxPlain)} {
			if got, err := open(r); err != nil || got != "" {
				t.Fatalf("round %d: a record of %d bytes without data: %q, %v", i, len(r), got, err)
			}
		}
		for _, padding := range []int{MaxPlain - 2, 100, 0} {
			if got, err := open(h.sealPadded(23, []byte("up"), padding)); err != nil || got != "up" {
				t.Fatalf("round %d: %d bytes of padding behind the data: %q, %v", i, padding, got, err)
			}
		}
	}
	if _, err := open(h.sealPadded(23, nil, MaxPlain)); err != nil {
		t.Fatal(err)
	}
	if _, err := open(h.sealPadded(23, nil, MaxPlain)); !errors.Is(err, errWithoutData) {
		t.Errorf("the second record of padding alone: %v", err)
	}
}
