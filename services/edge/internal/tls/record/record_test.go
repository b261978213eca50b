package record

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"runtime"
	"testing"
	"time"
)

// certificate is one for localhost that signed itself.
func certificate(tb testing.TB) tls.Certificate {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	of := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, of, of, &key.PublicKey, key)
	if err != nil {
		tb.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// ends is a connection whose hands are shaken: the server's end, and a client that talks through
// memory.
type ends struct {
	tb     testing.TB
	server *Conn
	client *tls.Conn
	wire   *memory
	plain  [MaxPlain]byte
}

// memory is the client's socket: what it writes is up, what it reads is down.
type memory struct {
	pipe
	up   []byte
	down []byte
	turn func() error // called where down is empty
}

func (m *memory) Write(b []byte) (int, error) { m.up = append(m.up, b...); return len(b), nil }

func (m *memory) Read(b []byte) (int, error) {
	for len(m.down) == 0 {
		if err := m.turn(); err != nil {
			return 0, err
		}
	}
	n := copy(b, m.down)
	m.down = m.down[n:]
	return n, nil
}

func (m *memory) record() []byte {
	n := Whole(m.up)
	r := bytes.Clone(m.up[:n])
	m.up = m.up[n:]
	return r
}

// shake makes both ends. The client's turn is whenever the server waits, so that nothing runs at
// the same time.
func shake(tb testing.TB, cert tls.Certificate, version uint16) *ends {
	tb.Helper()
	return shakeWith(tb, cert, version, nil)
}

// shakeWith has the client's secrets written to log.
func shakeWith(tb testing.TB, cert tls.Certificate, version uint16, log io.Writer) *ends {
	tb.Helper()
	e := &ends{tb: tb, wire: &memory{}}
	toServer, toClient := make(chan []byte), make(chan []byte)
	e.wire.turn = func() error {
		for len(e.wire.up) > 0 {
			toServer <- e.wire.record()
		}
		e.wire.down = <-toClient
		return nil
	}
	cfg := Prepare(&tls.Config{Certificates: []tls.Certificate{cert}})
	e.server = Server(cfg, func(sent []byte) ([]byte, error) {
		if len(sent) > 0 {
			toClient <- sent
		}
		return <-toServer, nil
	})
	e.client = tls.Client(e.wire, &tls.Config{InsecureSkipVerify: true, //nolint:gosec // whose certificate it is does not matter here
		MaxVersion: version, DynamicRecordSizingDisabled: true, KeyLogWriter: log})
	done := make(chan error)
	go func() {
		err := e.client.Handshake()
		for err == nil && len(e.wire.up) > 0 {
			toServer <- e.wire.record()
		}
		done <- err
	}()
	got := make(chan error, 1)
	var tail []byte
	go func() {
		sent, err := e.server.Handshake()
		if tail = sent; version == tls.VersionTLS12 {
			toClient <- sent
			tail = nil
		}
		got <- err
	}()
	if err := errors.Join(<-done, <-got); err != nil {
		tb.Fatal(err)
	}
	e.wire.down = tail
	e.wire.turn = func() error { return nothing{} }
	return e
}

// up has the client say something and the server hear it.
func (e *ends) up(text []byte) (heard []byte, err error) {
	if _, err := e.client.Write(text); err != nil {
		return nil, err
	}
	for len(e.wire.up) > 0 {
		var n int
		n, e.wire.down, err = e.server.Open(e.plain[:], e.wire.record(), e.wire.down)
		heard = append(heard, e.plain[:n]...)
		if err != nil {
			return heard, err
		}
	}
	return heard, nil
}

func (e *ends) down(text []byte) []byte {
	var err error
	if e.wire.down, err = e.server.Seal(e.wire.down, text); err != nil {
		e.tb.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(e.client, got); err != nil {
		e.tb.Fatal(err)
	}
	return got
}

var versions = map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13}

func TestBothWays(t *testing.T) {
	cert := certificate(t)
	for name, v := range versions {
		t.Run(name, func(t *testing.T) {
			e := shake(t, cert, v)
			for _, n := range []int{1, 100, MaxPlain, MaxPlain + 1, 100_000} {
				text := bytes.Repeat([]byte{byte(n)}, n)
				if got, err := e.up(text); err != nil || !bytes.Equal(got, text) {
					t.Fatalf("up: %d of %d bytes, %v", len(got), n, err)
				}
				if got := e.down(text); !bytes.Equal(got, text) {
					t.Fatalf("down: %d bytes differ", n)
				}
			}
		})
	}
}

func TestOverheadIsEnough(t *testing.T) {
	cert := certificate(t)
	for name, v := range versions {
		e := shake(t, cert, v)
		const records = 3
		sealed, err := e.server.Seal(nil, make([]byte, records*MaxPlain))
		if err != nil || len(sealed) > records*(MaxPlain+Overhead) {
			t.Errorf("%s: %d records of %d bytes come to %d, %v", name, records, MaxPlain, len(sealed), err)
		}
	}
}

func TestEnds(t *testing.T) {
	cert := certificate(t)
	for name, v := range versions {
		t.Run(name, func(t *testing.T) {
			e := shake(t, cert, v)
			if err := e.client.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if _, _, err := e.server.Open(e.plain[:], e.wire.record(), nil); !errors.Is(err, ErrEnded) {
				t.Fatalf("got %v", err)
			}
			bye, err := e.server.Bye(nil)
			if err != nil {
				t.Fatal(err)
			}
			e.wire.down = bye
			if _, err := e.client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Fatalf("the client is told %v", err)
			}
		})
	}
}

func TestWhole(t *testing.T) {
	for _, x := range []struct {
		b    string
		want int
	}{
		{"", 0},
		{"\x17\x03\x03\x00", 0},
		{"\x17\x03\x03\x00\x02a", 0},
		{"\x17\x03\x03\x00\x02ab", 7},
		{"\x17\x03\x03\x00\x02abc", 7},
		{"\x17\x03\x03\x00\x00", 5},
		{"\x17\x03\x03\x48\x00", 0},
		{"\x17\x03\x03\x48\x01", 5},
		{"GET / HTTP", 10},
	} {
		if n := Whole([]byte(x.b)); n != x.want {
			t.Errorf("%q: %d, want %d", x.b, n, x.want)
		}
	}
}

// idleBudget is the heap of one connection that has shaken hands and is idle: 7,321 bytes with TLS
// 1.3 and Go 1.26.
const idleBudget = 8 << 10

func TestAnIdleConnectionIsSmall(t *testing.T) {
	cert := certificate(t)
	for name, v := range versions {
		const n = 200
		servers := make([]*Conn, 0, n)
		shake(t, cert, v)
		before := heap()
		for range n {
			e := shake(t, cert, v)
			if _, err := e.up([]byte("Hello")); err != nil {
				t.Fatal(err)
			}
			e.down([]byte("Welcome"))
			servers = append(servers, e.server)
		}
		if each := (heap() - before) / n; each > idleBudget {
			t.Errorf("%s: %d bytes each, budget %d", name, each, idleBudget)
		} else {
			t.Logf("%s: %d bytes each", name, each)
		}
		runtime.KeepAlive(servers)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// FuzzOpen has records torn out, doubled, cut and changed. Whatever comes, what is opened is a
// beginning of what was sealed, and an error is the last word.
func FuzzOpen(f *testing.F) {
	f.Add([]byte{0, 0, 0}, uint8(3))
	f.Add([]byte{1, 7, 200}, uint8(5))
	f.Add([]byte{2, 9, 9, 3, 4, 1}, uint8(9))
	cert := certificate(f)
	f.Fuzz(func(t *testing.T, changes []byte, records uint8) {
		version := uint16(tls.VersionTLS13)
		if records%2 == 0 {
			version = tls.VersionTLS12
		}
		e := shake(t, cert, version)
		var sent, got []byte
		for i := range records % 16 {
			text := bytes.Repeat([]byte{i}, 1+int(i)*700)
			sent = append(sent, text...)
			if _, err := e.client.Write(text); err != nil {
				t.Fatal(err)
			}
		}
		b := bytes.Clone(e.wire.up)
		for ; len(changes) >= 3 && len(b) > 0; changes = changes[3:] {
			at := (int(changes[1])<<8 | int(changes[2])) % len(b)
			switch changes[0] % 4 {
			case 0:
				b[at] ^= changes[2] | 1
			case 1:
				b = b[:at]
			case 2:
				b = append(b[:at:at], b[min(at+int(changes[1]), len(b)):]...)
			case 3:
				if len(b) < 1<<20 { // by a half each time, it soon takes all memory
					b = append(b[:at:at], b[at/2:]...)
				}
			}
		}
		for n := Whole(b); n > 0; n = Whole(b) {
			m, _, err := e.server.Open(e.plain[:], b[:n], nil)
			got = append(got, e.plain[:m]...)
			b = b[n:]
			if err == nil {
				continue
			}
			if m, _, err := e.server.Open(e.plain[:], b[:Whole(b)], nil); m > 0 || err == nil && Whole(b) > 0 {
				t.Fatalf("after an error %d bytes are opened, %v", m, err)
			}
			break
		}
		if !bytes.HasPrefix(sent, got) {
			t.Fatal("what was opened was not sealed")
		}
	})
}
