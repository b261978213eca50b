// Package record is the record layer of one TLS connection on an event loop: crypto/tls, which
// waits for its socket, over a transport that never does. A handshake takes its records from
// whoever gives them and may wait; once it is over, the loop hands in one whole record at a time
// and takes what was in it, and has what a connection is owed sealed.
package record

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
)

const (
	headerSize = 5
	// MaxPlain is the most that one record holds.
	MaxPlain = 16 << 10
	// maxSealed is the most that follows a record's header: TLS 1.2 allows 2,048 more bytes than
	// there are inside.
	maxSealed = MaxPlain + 2048
	// maxRecord is the longest record of TLS 1.3. A client may pad each of its records to that
	// length, so that nobody sees how much is in it.
	maxRecord = headerSize + MaxPlain + 256
	// maxWithoutData is how many bytes of records may come that hold no data, in a row: one that is
	// padding alone, and some small ones. crypto/tls keeps a message of a handshake until it is
	// whole, up to 64 KiB; the only one that a client sends later is a KeyUpdate, in a record of 27
	// bytes without padding, and 16 of these in a row at most.
	maxWithoutData = maxRecord + 4<<10
	// Overhead is the most that sealing adds to a record of the cipher suites that Prepare allows.
	Overhead = headerSize + 8 + 16 + 1
)

// Prepare is cfg as connections here need it.
func Prepare(cfg *tls.Config) *tls.Config {
	cfg = cfg.Clone()
	cfg.CipherSuites = suites
	// what a turn owes a connection is one record of up to 16 KiB, from the first on
	cfg.DynamicRecordSizingDisabled = true
	return cfg
}

// suites are the cipher suites of TLS 1.2 that are offered: those that seal in one pass, with keys
// that are forgotten. TLS 1.3 has no others.
var suites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

// Whole says how many bytes the record has that b begins with; 0: it has not come whole. One that
// is too long, or of no version of TLS, counts as whole: crypto/tls says what is wrong with it.
func Whole(b []byte) int {
	if len(b) < headerSize {
		return 0
	}
	n := int(b[3])<<8 | int(b[4])
	switch {
	case n > maxSealed, b[1] != 3:
		return len(b)
	case len(b) < headerSize+n:
		return 0
	}
	return headerSize + n
}

// Source gives a handshake the client's next record, which is good until it is asked again. sent is
// what the client must have before it answers; nil: nothing.
type Source func(sent []byte) (record []byte, err error)

// Conn is the server's end of one connection. One goroutine at a time uses it: who shakes hands,
// then the loop.
type Conn struct {
	pipe        pipe
	tls         *tls.Conn
	withoutData int // bytes of records, since the last one that held data
}

// Server makes a connection that has not shaken hands.
func Server(cfg *tls.Config, source Source) *Conn {
	c := &Conn{pipe: pipe{source: source}}
	c.tls = tls.Server(&c.pipe, cfg)
	return c
}

// Handshake shakes hands, waiting for source. sent is what the client is still to be sent, an alert
// where it failed.
func (c *Conn) Handshake() (sent []byte, err error) {
	err = c.tls.Handshake()
	sent = c.pipe.out
	c.pipe = pipe{}
	return sent, err
}

// State of the handshake, once it is over.
func (c *Conn) State() tls.ConnectionState { return c.tls.ConnectionState() }

// ErrEnded says that the client has ended the connection, with a close_notify or an alert.
var ErrEnded = errors.New("record: the client has ended the connection")

var errWithoutData = errors.New("record: more than 20 KiB of records in a row hold no data")

// Open takes one whole record and puts what was in it, n bytes, into plain, which has room for
// MaxPlain. Answers to it (an alert, a new key) are appended to out. After an error the connection
// is over.
func (c *Conn) Open(plain, record, out []byte) (n int, sealed []byte, err error) {
	c.pipe.in, c.pipe.out = record, out
	n, err = c.tls.Read(plain)
	whole := len(c.pipe.in) == 0
	sealed = c.pipe.out
	c.pipe.in, c.pipe.out = nil, nil
	if c.withoutData += len(record); n > 0 {
		c.withoutData = 0
	}
	var remote *net.OpError
	switch {
	case errors.Is(err, errNothing) && c.withoutData > maxWithoutData:
		return n, sealed, errWithoutData
	case errors.Is(err, errNothing) && whole:
		return n, sealed, nil
	case errors.Is(err, io.EOF), errors.As(err, &remote) && remote.Op == "remote error":
		return n, sealed, ErrEnded
	}
	return n, sealed, err
}

// Seal appends plain to dst, in records of up to MaxPlain bytes.
func (c *Conn) Seal(dst, plain []byte) (sealed []byte, err error) {
	c.pipe.out = dst
	_, err = c.tls.Write(plain)
	sealed, c.pipe.out = c.pipe.out, nil
	return sealed, err
}

// Bye appends a close_notify to dst. Nothing can be sealed after it.
func (c *Conn) Bye(dst []byte) (sealed []byte, err error) {
	c.pipe.out = dst
	err = c.tls.CloseWrite()
	sealed, c.pipe.out = c.pipe.out, nil
	return sealed, err
}
