package proxyproto

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// v2 makes a header of version 2.
func v2(command, family byte, body ...byte) []byte {
	b := append([]byte(signature2), command, family)
	return append(binary.BigEndian.AppendUint16(b, uint16(len(body))), body...)
}

var (
	inet  = append([]byte{192, 0, 2, 1, 10, 0, 0, 1}, 0x1f, 0x90, 0x1c, 0xe8)
	inet6 = append(append(append([]byte{0x20, 1, 0xd, 0xb8}, make([]byte, 11)...), 7), make([]byte, 20)...)
	tlv   = []byte{0x02, 0, 3, 'a', '.', 'b', 0x05, 0, 2, 9, 9}
)

func TestHeaders(t *testing.T) {
	for _, x := range []struct {
		name   string
		header []byte
		client string // "": none is named
	}{
		{"TCP4", []byte("PROXY TCP4 192.0.2.1 10.0.0.1 56324 7400\r\n"), "192.0.2.1"},
		{"TCP6", []byte("PROXY TCP6 2001:db8::7 fd00::1 1 65535\r\n"), "2001:db8::7"},
		{"TCP6 of IPv4", []byte("PROXY TCP6 ::ffff:192.0.2.1 ::ffff:10.0.0.1 1 2\r\n"), "192.0.2.1"},
		{"longest", []byte("PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535" + strings.Repeat("x", 107-2-58) + "\r\n")[:107], ""},
		{"UNKNOWN", []byte("PROXY UNKNOWN\r\n"), ""},
		{"v2 TCP over IPv4", v2(commandProxy, 0x11, inet...), "192.0.2.1"},
		{"v2 with TLVs", v2(commandProxy, 0x11, append(bytes.Clone(inet), tlv...)...), "192.0.2.1"},
		{"v2 TCP over IPv6", v2(commandProxy, 0x21, inet6...), "2001:db8::7"},
		{"v2 Unix", v2(commandProxy, 0x31, make([]byte, 216)...), ""},
		{"v2 unspecified", v2(commandProxy, 0x00, 1, 2, 3), ""},
		{"v2 UDP", v2(commandProxy, 0x12, inet...), ""},
		{"v2 LOCAL", v2(commandLocal, 0x00), ""},
		{"v2 LOCAL with addresses", v2(commandLocal, 0x11, inet...), ""},
		{"v2 longest", v2(commandProxy, 0x11, append(bytes.Clone(inet), make([]byte, MaxHeader-fixed2-len(inet))...)...), "192.0.2.1"},
	} {
		if x.name == "longest" {
			copy(x.header[105:], "\r\n")
		}
		want := netip.Addr{}
		if x.client != "" {
			want = netip.MustParseAddr(x.client)
		}
		for cut := range x.header { // however it is torn
			if _, _, err := Read(x.header[:cut]); !errors.Is(err, ErrMore) {
				t.Fatalf("%s, %d bytes of it: %v", x.name, cut, err)
			}
		}
		client, n, err := Read(append(bytes.Clone(x.header), "PROXY what comes behind"...))
		if err != nil || client != want || n != len(x.header) {
			t.Errorf("%s: %v, %d of %d bytes, %v", x.name, client, n, len(x.header), err)
		}
	}
}

func TestMalformedHeaders(t *testing.T) {
	for _, b := range [][]byte{
		[]byte("GET / HTTP/1.1\r\n"),
		[]byte("PROXY\r\n"),
		[]byte("PROXY \r\n"),
		[]byte("PROXY TCP4 192.0.2.1 10.0.0.1 56324 7400\n"),
		[]byte("PROXY TCP4 192.0.2.1 10.0.0.1 56324\r\n"),
		[]byte("PROXY TCP4 192.0.2.1 10.0.0.1 56324 7400 1\r\n"),
		[]byte("PROXY TCP4 192.0.2.1 10.0.0.1 56324 070\r\n"),
		[]byte("PROXY TCP4 192.0.2.1 10.0.0.1 56324 65536\r\n"),
		[]byte("PROXY TCP4 192.0.2.1 10.0.0.1 -1 1\r\n"),
		[]byte("PROXY TCP4 ::1 ::1 1 1\r\n"),
		[]byte("PROXY TCP6 192.0.2.1 10.0.0.1 1 1\r\n"),
		[]byte("PROXY TCP6 fe80::1%eth0 fe80::2 1 1\r\n"),
		[]byte("PROXY TCP4 192.0.2 10.0.0.1 1 1\r\n"),
		[]byte("PROXY TCP5 192.0.2.1 10.0.0.1 1 1\r\n"),
		[]byte("PROXY TCP4  192.0.2.1 10.0.0.1 1 1\r\n"),
		[]byte("PROXY UNKNOWN" + strings.Repeat("x", 107)),
		v2(0x22, 0x11, inet...),
		v2(0x31, 0x11, inet...), // another version
		v2(commandProxy, 0x41, inet...),
		v2(commandProxy, 0x13, inet...),
		v2(commandProxy, 0x11, inet[:11]...),
		v2(commandProxy, 0x21, inet...),
		v2(commandProxy, 0x31, inet...),
		v2(commandProxy, 0x11, make([]byte, MaxHeader-fixed2+1)...),
		[]byte(signature2[:11] + "x"),
	} {
		if client, n, err := Read(b); !errors.Is(err, ErrBad) || n != 0 || client.IsValid() {
			t.Errorf("%q: %v, %d bytes, %v", b, client, n, err)
		}
	}
}

// Whatever client a header names is read from it, and nothing behind it is taken.
func TestHeadersAreReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "addresses")
		client := netip.AddrFrom4([4]byte(a))
		header := v2(commandProxy, 0x11, append(append(a[:4:4], a[16:20]...), 1, 2, 3, 4)...)
		if rapid.Bool().Draw(t, "IPv6") {
			client = netip.AddrFrom16([16]byte(a)).Unmap()
			header = v2(commandProxy, 0x21, append(a, 1, 2, 3, 4)...)
		}
		behind := rapid.SliceOf(rapid.Byte()).Draw(t, "behind")
		if got, n, err := Read(append(bytes.Clone(header), behind...)); got != client || n != len(header) || err != nil {
			t.Fatalf("%v, %d bytes, %v", got, n, err)
		}
	})
}

// FuzzRead: whatever comes, Read says one of three things, and more bytes change nothing of what it
// has said.
func FuzzRead(f *testing.F) {
	f.Add([]byte("PROXY TCP4 192.0.2.1 10.0.0.1 56324 7400\r\nbehind"))
	f.Add([]byte("PROXY UNKNOWN\r\n"))
	f.Add(v2(commandProxy, 0x11, append(bytes.Clone(inet), tlv...)...))
	f.Add(v2(commandProxy, 0x21, inet6...))
	f.Add(v2(commandLocal, 0x00))
	f.Fuzz(func(t *testing.T, b []byte) {
		client, n, err := Read(b)
		switch {
		case err == nil:
			if n <= 0 || n > len(b) || n > MaxHeader || !Begins(b[0]) {
				t.Fatalf("%d of %d bytes", n, len(b))
			}
			for cut := range n {
				if _, _, err := Read(b[:cut]); !errors.Is(err, ErrMore) {
					t.Fatalf("%d of %d bytes: %v", cut, n, err)
				}
			}
		case errors.Is(err, ErrBad), errors.Is(err, ErrMore):
			if n != 0 || client.IsValid() || errors.Is(err, ErrMore) && len(b) >= MaxHeader {
				t.Fatalf("%v, %d bytes, %v", client, n, err)
			}
		default:
			t.Fatal(err)
		}
	})
}
