package loop

import (
	"crypto/tls"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/testca"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// FuzzConnection plays connections without TLS: frames that are valid and broken, in pieces, from
// clients that read slowly or leave, while time passes and the mesh fails. What must hold is in
// game.finish and in what the bystander looks at.
func FuzzConnection(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, in []byte) { play(t, gameKind{}, in) })
}

// FuzzTLSConnection is FuzzConnection over TLS: records come in pieces, and are spoilt.
func FuzzTLSConnection(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, in []byte) { play(t, gameKind{tls: true}, in) })
}

// FuzzClaimsConnection plays clients that claim, with the edge's own way to stores that have one
// holder for each resource: nobody goes on to believe that it holds what another does.
func FuzzClaimsConnection(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, in []byte) { play(t, gameKind{claims: true}, in) })
}

// FuzzGroupsConnection plays members of groups, with the edge's own dispatchers: a message is one
// member's at a time.
func FuzzGroupsConnection(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, in []byte) { play(t, gameKind{groups: true}, in) })
}

// seed adds inputs of all lengths that are as good as any.
func seed(f *testing.F) {
	for i := range uint64(20) {
		r := rand.New(rand.NewPCG(i, 18))
		in := make([]byte, 20*(i+1))
		for at := range in {
			in[at] = byte(r.Uint32())
		}
		f.Add(in)
	}
}

// gameTLS is the certificate of all games, and what clients know of it. Its clock is that of a
// bubble, which begins in 2000.
var gameTLS = sync.OnceValue(func() (both struct{ server, client *tls.Config }) {
	ca, err := testca.New()
	if err != nil {
		panic(err)
	}
	cert, err := ca.Certificate("localhost")
	if err != nil {
		panic(err)
	}
	both.server = &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{wire.ALPN}}
	both.client = &tls.Config{InsecureSkipVerify: true, ServerName: "localhost", NextProtos: []string{wire.ALPN}} //nolint:gosec // its clock is not the certificate's
	return both
})

// tlsEnd is a client's end of TLS: what it is to be sent is sealed here, and what it gets is
// opened, while the test moves the bytes.
type tlsEnd struct {
	conn *tls.Conn
	more chan struct{} // there is something in, or closed

	mu       sync.Mutex
	in, out  []byte // ciphertext
	opened   []byte
	waiting  []byte // plaintext that is sent once hands are shaken
	shaken   bool
	finished bool
}

// newTLSEnd begins to shake hands. how chooses the version.
func newTLSEnd(how byte) *tlsEnd {
	e := &tlsEnd{more: make(chan struct{}, 1)}
	cfg := gameTLS().client.Clone()
	if how%3 == 0 {
		cfg.MaxVersion = tls.VersionTLS12
	}
	e.conn = tls.Client(e, cfg)
	go e.run()
	return e
}

func (e *tlsEnd) run() {
	if e.conn.Handshake() != nil {
		return
	}
	e.mu.Lock()
	e.shaken = true
	waiting := e.waiting
	e.waiting = nil
	e.mu.Unlock()
	if _, err := e.conn.Write(waiting); err != nil {
		return
	}
	var room [4096]byte
	for {
		n, err := e.conn.Read(room[:])
		e.mu.Lock()
		e.opened = append(e.opened, room[:n]...)
		e.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// seal sends frames.
func (e *tlsEnd) seal(b []byte) {
	e.mu.Lock()
	if !e.shaken {
		e.waiting = append(e.waiting, b...)
		e.mu.Unlock()
		return
	}
	e.mu.Unlock()
	_, _ = e.conn.Write(b) // its error is that the edge ended it
}

// sealed takes what is to be written to the socket.
func (e *tlsEnd) sealed() []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := e.out
	e.out = nil
	return out
}

// receive takes what was read.
func (e *tlsEnd) receive(b []byte) {
	e.mu.Lock()
	e.in = append(e.in, b...)
	e.mu.Unlock()
	e.wake()
}

// plain takes what was opened so far.
func (e *tlsEnd) plain() []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	b := e.opened
	e.opened = nil
	return b
}

func (e *tlsEnd) wake() {
	select {
	case e.more <- struct{}{}:
	default:
	}
}

func (e *tlsEnd) end() {
	e.mu.Lock()
	e.finished = true
	e.mu.Unlock()
	e.wake()
}

// Read implements net.Conn for TLS.
func (e *tlsEnd) Read(b []byte) (int, error) {
	for {
		e.mu.Lock()
		n := copy(b, e.in)
		e.in = e.in[n:]
		finished := e.finished
		e.mu.Unlock()
		switch {
		case n > 0:
			return n, nil
		case finished:
			return 0, io.EOF
		}
		<-e.more
	}
}

// Write implements net.Conn for TLS, as do those that follow.
func (e *tlsEnd) Write(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.out = append(e.out, b...)
	return len(b), nil
}

// Close ends it.
func (e *tlsEnd) Close() error { e.end(); return nil }

// LocalAddr is of no use.
func (e *tlsEnd) LocalAddr() net.Addr { return &net.TCPAddr{} }

// RemoteAddr is of no use.
func (e *tlsEnd) RemoteAddr() net.Addr { return &net.TCPAddr{} }

// SetDeadline does nothing: the test's clock bounds everything.
func (e *tlsEnd) SetDeadline(time.Time) error { return nil }

// SetReadDeadline does nothing.
func (e *tlsEnd) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing.
func (e *tlsEnd) SetWriteDeadline(time.Time) error { return nil }
