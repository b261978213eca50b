package record

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/tls"
	"fmt"
	"slices"
	"testing"
	"time"
)

// What a loop pays for a record that a client has sent, by the bytes in it.
func BenchmarkOpen(b *testing.B) {
	cert := certificate(b)
	for _, size := range []int{1, 1 << 10, MaxPlain} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			e := shake(b, cert, tls.VersionTLS13)
			text := make([]byte, size)
			b.ReportAllocs()
			for n := 0; n < b.N; {
				b.StopTimer()
				var records [][]byte
				for range min(256, b.N-n) {
					if _, err := e.client.Write(text); err != nil {
						b.Fatal(err)
					}
					records = append(records, e.wire.record())
				}
				b.StartTimer()
				for _, r := range records {
					if got, _, err := e.server.Open(e.plain[:], r, nil); got != size || err != nil {
						b.Fatal(got, err)
					}
				}
				n += len(records)
			}
		})
	}
}

// The same of a record with a KeyUpdate, which is answered with one.
func BenchmarkOpenKeyUpdate(b *testing.B) {
	e, h := updating(b)
	b.ReportAllocs()
	for n := 0; n < b.N; {
		b.StopTimer()
		var records [][]byte
		for range min(16, b.N-n) { // so many come in a row at most
			records = append(records, h.update(1, 5)...)
		}
		data := h.seal(23, []byte("x"))
		b.StartTimer()
		for _, r := range records {
			if _, _, err := e.server.Open(e.plain[:], r, nil); err != nil {
				b.Fatal(err)
			}
		}
		n += len(records)
		b.StopTimer()
		if _, _, err := e.server.Open(e.plain[:], data, nil); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// What a loop pays for a record that it sends.
func BenchmarkSeal(b *testing.B) {
	cert := certificate(b)
	for _, size := range []int{10, 1 << 10, MaxPlain} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			e := shake(b, cert, tls.VersionTLS13)
			text, out := make([]byte, size), make([]byte, 0, MaxPlain+Overhead)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := e.server.Seal(out, text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The least that sealing can cost: AES-GCM alone, with everything in the caches, by the bytes of a
// record. It is the fastest of twenty rounds, beside other work on the machine. crypto/tls chooses
// AES-128 in TLS 1.3 where both ends have AES in hardware.
func BenchmarkCipher(b *testing.B) {
	for _, bits := range []int{128, 256} {
		for _, size := range []int{160, 1 << 10, 11 << 10, MaxPlain} {
			b.Run(fmt.Sprintf("AES-%d/%d", bits, size), func(b *testing.B) {
				block, err := aes.NewCipher(make([]byte, bits/8))
				if err != nil {
					b.Fatal(err)
				}
				gcm, err := cipher.NewGCM(block)
				if err != nil {
					b.Fatal(err)
				}
				nonce, head := make([]byte, gcm.NonceSize()), make([]byte, headerSize)
				text, out := make([]byte, size), make([]byte, 0, size+gcm.Overhead())
				const each = 16
				var rounds []time.Duration
				for b.Loop() {
					began := time.Now()
					for range each {
						gcm.Seal(out, nonce, text, head) // #nosec G407 -- nothing reads it
					}
					rounds = append(rounds, time.Since(began))
				}
				slices.Sort(rounds)
				b.ReportMetric(float64(rounds[len(rounds)/20].Nanoseconds())/each, "ns/record")
			})
		}
	}
}
