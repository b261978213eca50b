package turns

import (
	"net"
	"runtime"
	"time"
)

const (
	// A piece is what is read at a time, in bytes: less where the work for it takes longer than
	// long, more where it takes less than short.
	leastPiece = 2 << 10
	mostPiece  = 32 << 10
	long       = time.Millisecond
	short      = 300 * time.Microsecond
	// perByte is what a read is charged: about what calls with little in them cost. The time that
	// it takes says more of who else is busy.
	perByte = 100 * time.Nanosecond
)

// conn is a connection that is read in turn. One goroutine reads it at a time, and has its turn
// from the end of a Read to the next one.
type conn struct {
	net.Conn
	turn  *Turn
	piece int // bytes
	last  int // bytes of the last read
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	if c.last > 0 {
		c.done()
	}
	n, err := c.Conn.Read(b[:min(len(b), c.piece)])
	if n > 0 {
		c.turn.Enter()
	}
	c.last = n
	return n, err
}

// done ends a turn, if there is one, once those have run that it has woken.
func (c *conn) done() {
	if c.turn.began.IsZero() {
		return
	}
	runtime.Gosched()
	took := time.Since(c.turn.began)
	c.turn.leave(time.Duration(c.last) * perByte)
	switch {
	case took > long:
		c.piece = max(c.piece/2, leastPiece)
	case took < short && c.last == c.piece:
		c.piece = min(c.piece*2, mostPiece)
	}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.turn.Close()
	return c.Conn.Close()
}
