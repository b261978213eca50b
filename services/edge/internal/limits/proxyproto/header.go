// Package proxyproto reads the header with which a proxy says, at the beginning of a connection,
// for whom it connects: the PROXY protocol, versions 1 and 2
// (https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt).
package proxyproto

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
)

// MaxHeader is how long a header may be with all it says beside addresses (TLVs), which are passed
// over.
const MaxHeader = 4096

var (
	// ErrMore says that the header has not come whole.
	ErrMore = errors.New("proxyproto: the header has not come whole")
	// ErrBad says that there is no header, or a malformed one.
	ErrBad = errors.New("proxyproto: malformed header")
)

// Signatures: what a header begins with.
const (
	signature1 = "PROXY "
	signature2 = "\r\n\r\n\x00\r\nQUIT\n"
)

// maxLine is the longest header of version 1, with its end.
const maxLine = 107

// Read reads the header that b begins with, n bytes of it. client is who has connected to the
// proxy; it is not valid where the header doesn't say: the proxy itself connects, to see how the
// server is, or for a client of another kind.
func Read(b []byte) (client netip.Addr, n int, err error) {
	switch {
	case starts(b, signature2):
		return read2(b)
	case starts(b, signature1):
		return read1(b)
	}
	return client, 0, ErrBad
}

// Begins reports whether a connection that begins with the byte sends a header.
func Begins(first byte) bool { return first == signature1[0] || first == signature2[0] }

// starts reports whether b starts with a signature, as far as it has come.
func starts(b []byte, signature string) bool {
	n := min(len(b), len(signature))
	return string(b[:n]) == signature[:n]
}

// read1 reads a line: PROXY TCP4|TCP6 client server client-port server-port, or PROXY UNKNOWN and
// anything.
func read1(b []byte) (client netip.Addr, n int, err error) {
	end := bytes.IndexByte(b[:min(len(b), maxLine)], '\n')
	switch {
	case end < 0 && len(b) < maxLine:
		return client, 0, ErrMore
	case end < len(signature1)+1 || b[end-1] != '\r':
		return client, 0, ErrBad
	}
	kind, line := next(b[len(signature1) : end-1])
	if string(kind) == "UNKNOWN" {
		return client, end + 1, nil
	}
	from, line := next(line)
	to, line := next(line)
	fromPort, toPort := next(line)
	is4 := string(kind) == "TCP4"
	if !is4 && string(kind) != "TCP6" || !port(fromPort) || !port(toPort) {
		return client, 0, ErrBad
	}
	client, err = netip.ParseAddr(string(from))
	server, err2 := netip.ParseAddr(string(to))
	if err != nil || err2 != nil || client.Is4() != is4 || server.Is4() != is4 || client.Zone() != "" || server.Zone() != "" {
		return netip.Addr{}, 0, ErrBad
	}
	return client.Unmap(), end + 1, nil
}

// next is what comes before the next space, and what behind.
func next(line []byte) (word, rest []byte) {
	word, rest, _ = bytes.Cut(line, []byte{' '})
	return word, rest
}

// port reports whether b is 0 to 65535, without leading zeros.
func port(b []byte) bool {
	if len(b) == 0 || len(b) > 5 || b[0] == '0' && len(b) > 1 {
		return false
	}
	v := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
		v = v*10 + int(c-'0')
	}
	return v <= 0xffff
}

// fixed2 is the part of a header of version 2 that has one length: signature, version and command,
// family and protocol, length of the rest.
const fixed2 = len(signature2) + 4

// Values of the bytes behind the signature.
const (
	commandLocal = 0x20
	commandProxy = 0x21
	familyUnspec = 0x0
	familyInet   = 0x1
	familyInet6  = 0x2
	familyUnix   = 0x3
	streams      = 0x1
	datagrams    = 0x2
)

func read2(b []byte) (client netip.Addr, n int, err error) {
	if len(b) < fixed2 {
		return client, 0, ErrMore
	}
	command, family, protocol := b[12], b[13]>>4, b[13]&0xf
	n = fixed2 + int(binary.BigEndian.Uint16(b[14:]))
	switch {
	case command != commandLocal && command != commandProxy, family > familyUnix, protocol > datagrams, n > MaxHeader:
		return client, 0, ErrBad
	case len(b) < n:
		return client, 0, ErrMore
	}
	if command == commandLocal || protocol != streams {
		return client, n, nil
	}
	switch body := b[fixed2:n]; family {
	case familyInet: // two addresses, two ports
		if len(body) < 2*4+4 {
			return client, 0, ErrBad
		}
		client = netip.AddrFrom4([4]byte(body))
	case familyInet6:
		if len(body) < 2*16+4 {
			return client, 0, ErrBad
		}
		client = netip.AddrFrom16([16]byte(body)).Unmap()
	case familyUnix:
		if len(body) < 2*108 {
			return client, 0, ErrBad
		}
	case familyUnspec:
	}
	return client, n, nil
}
