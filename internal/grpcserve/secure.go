package grpcserve

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	// recordHandshake is the first byte of TLS, and of no preface of HTTP/2.
	recordHandshake = 0x16
	// lingerTime is how long a client has for reading why it was refused, and lingerBytes what it
	// may send meanwhile. Closing at once would reset what was said.
	lingerTime  = time.Second
	lingerBytes = 64 << 10
)

// tlsAlone is said to clients without TLS where that is required.
const tlsAlone = "this port takes connections with TLS alone"

// TLS of a server. The first byte of a connection tells whether it has TLS: one port serves both.
type TLS struct {
	Config *tls.Config
	// Required refuses connections without TLS, before their clients have sent more than HTTP/2's
	// preface: no token of theirs is sent in the clear.
	Required bool
	// Began, if any, is told of each connection; err is that of Failed. It is called by the
	// connection's goroutine.
	Began func(b Beginning, from net.Addr, err error)
	// Hold, if any, is told of each connection with TLS, which end closes: end does not block.
	// release is called when the connection is closed.
	Hold func(s tls.ConnectionState, end func()) (release func())
}

// Beginning says how a connection began.
type Beginning int

// How connections begin.
const (
	Plain   Beginning = iota // without TLS
	Refused                  // without TLS, which is required
	Failed                   // the handshake did
	Full                     // a full handshake
	Resumed                  // a handshake with a ticket
)

// door is gRPC's way to what lies under its connections.
type door struct {
	credentials.TransportCredentials // those with TLS
	tls                              *TLS
}

func newDoor(t *TLS) *door { return &door{credentials.NewTLS(t.Config), t} }

// Clone implements credentials.TransportCredentials.
func (d *door) Clone() credentials.TransportCredentials { return newDoor(d.tls) }

// ServerHandshake implements credentials.TransportCredentials. gRPC calls it on a goroutine of the
// connection, with a deadline.
func (d *door) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn := &opened{Conn: raw, first: make([]byte, 1)}
	if _, err := io.ReadFull(raw, conn.first); err != nil {
		return nil, nil, errors.Join(err, raw.Close())
	}
	if conn.first[0] == recordHandshake {
		return d.secure(conn)
	}
	if d.tls.Required {
		d.began(Refused, raw, nil)
		return nil, nil, errors.Join(errors.New(tlsAlone), refuse(conn))
	}
	d.began(Plain, raw, nil)
	conn.good = true
	return insecure.NewCredentials().ServerHandshake(conn)
}

func (d *door) secure(conn *opened) (net.Conn, credentials.AuthInfo, error) {
	secure, info, err := d.TransportCredentials.ServerHandshake(conn)
	if err != nil {
		d.began(Failed, conn, err)
		return nil, nil, err // it has closed conn
	}
	conn.good = true
	b := Full
	if i, ok := info.(credentials.TLSInfo); ok {
		if i.State.DidResume {
			b = Resumed
		}
		if d.tls.Hold != nil {
			conn.release = d.tls.Hold(i.State, func() { _ = conn.Conn.Close() })
		}
	}
	d.began(b, conn, nil)
	return secure, info, nil
}

func (d *door) began(b Beginning, conn net.Conn, err error) {
	if d.tls.Began != nil {
		d.tls.Began(b, conn.RemoteAddr(), err)
	}
}

// refuse tells a client that speaks HTTP/2 that it needs TLS, and ends the connection. GOAWAY comes
// in place of SETTINGS: a client that had those would send its first call, and what that carries.
func refuse(conn net.Conn) error {
	err := http2.NewFramer(conn, nil).WriteGoAway(0, http2.ErrCodeInadequateSecurity, []byte(tlsAlone))
	return errors.Join(err, conn.Close())
}

// opened is a connection whose first byte has been read.
type opened struct {
	net.Conn
	first []byte
	good  bool // the connection goes on: set before others have it
	// release is called when the connection is closed; nil: nothing is.
	release func()
}

// Read implements net.Conn.
func (o *opened) Read(b []byte) (int, error) {
	if len(o.first) == 0 {
		return o.Conn.Read(b)
	}
	n := copy(b, o.first)
	o.first = o.first[n:]
	return n, nil
}

// Close implements net.Conn. A client that is refused may read why before.
func (o *opened) Close() error {
	if !o.good {
		if o.SetDeadline(time.Now().Add(lingerTime)) == nil {
			_, _ = io.CopyN(io.Discard, o.Conn, lingerBytes)
		}
	}
	if o.release != nil {
		o.release()
	}
	return o.Conn.Close()
}
