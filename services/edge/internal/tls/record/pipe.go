package record

import (
	"net"
	"time"
)

// pipe is the net.Conn that crypto/tls reads and writes. It never holds more than the record in
// hand, so that crypto/tls keeps no bytes of the next one.
type pipe struct {
	in     []byte // of the record in hand
	out    []byte // written, and not taken
	source Source // nil: the handshake is over
}

// nothing says that no record is in hand. That crypto/tls takes it for temporary keeps the
// connection going.
type nothing struct{}

var errNothing net.Error = nothing{}

func (nothing) Error() string   { return "record: no record is in hand" }
func (nothing) Timeout() bool   { return true }
func (nothing) Temporary() bool { return true }

// Read gives bytes of the record in hand, and asks for another one while hands are shaken.
func (p *pipe) Read(b []byte) (n int, err error) {
	if len(p.in) == 0 {
		if p.source == nil {
			return 0, errNothing
		}
		sent := p.out
		p.out = nil
		if p.in, err = p.source(sent); err != nil {
			return 0, err
		}
	}
	n = copy(b, p.in)
	p.in = p.in[n:]
	return n, nil
}

// Write takes everything.
func (p *pipe) Write(b []byte) (int, error) {
	p.out = append(p.out, b...)
	return len(b), nil
}

// What follows a socket would do; whoever owns the pipe has the socket.

func (p *pipe) Close() error                     { return nil }
func (p *pipe) LocalAddr() net.Addr              { return nil }
func (p *pipe) RemoteAddr() net.Addr             { return nil }
func (p *pipe) SetDeadline(time.Time) error      { return nil }
func (p *pipe) SetReadDeadline(time.Time) error  { return nil }
func (p *pipe) SetWriteDeadline(time.Time) error { return nil }
