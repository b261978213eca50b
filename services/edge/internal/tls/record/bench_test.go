package record

import (
	"crypto/tls"
	"fmt"
	"testing"
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
