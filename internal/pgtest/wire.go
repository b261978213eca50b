package pgtest

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"sync"
)

// Statement is what a client sends at a time and is answered as one: up to a Sync, or a simple
// query.
type Statement struct {
	// App is the connection's application_name.
	App string
	// SQL of all that is executed, with "; " between; what is only parsed comes after "parse: ".
	SQL string
}

// Fate of a statement.
type Fate int

// What can become of a statement.
const (
	// Pass it on.
	Pass Fate = iota
	// Refused: it is not executed, and the server answers with an error of severity ERROR; the
	// connection stands.
	Refused
	// Unsent: the connection breaks before it is sent.
	Unsent
	// Unanswered: it is executed, and the connection breaks before the answer.
	Unanswered
	// Unheard: it is executed, and no answer ever comes; the connection stands until the client
	// gives up.
	Unheard
)

// Fates are all that can become of a statement but Pass.
var Fates = []Fate{Refused, Unsent, Unanswered, Unheard}

func (f Fate) String() string {
	return [...]string{"passed", "refused", "unsent", "unanswered", "unheard"}[f]
}

// Wire stands between a driver and Postgres, and has a test decide on each statement: that one is
// late, fails, or breaks its connection. Connections are made without TLS.
type Wire struct {
	mu    sync.Mutex
	judge func(Statement) Fate
}

// Judge has f decide from now on; nil: everything passes. Before f returns, the statement is not
// sent: that is how one is delayed.
func (w *Wire) Judge(f func(Statement) Fate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judge = f
}

func (w *Wire) fate(s Statement) Fate {
	w.mu.Lock()
	f := w.judge
	w.mu.Unlock()
	if f == nil {
		return Pass
	}
	return f(s)
}

// Dial is for the driver's configuration.
func (w *Wire) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &wireConn{Conn: conn, wire: w, named: map[string]string{}}, nil
}

// wireConn gathers what the client writes until a statement is complete. One goroutine writes, one
// reads.
type wireConn struct {
	net.Conn
	wire    *Wire
	begun   bool // the first message, which has no type, has passed
	app     string
	pending []byte            // written, and not yet sent
	whole   int               // bytes of pending that are whole messages of this statement
	named   map[string]string // prepared statements
	parsed  []string          // by this statement
	run     []string

	mu   sync.Mutex
	fate Fate // of the statement that is being answered
	tail []byte
}

var errCut = errors.New("pgtest: the connection was cut")

func (c *wireConn) Write(b []byte) (int, error) {
	c.pending = append(c.pending, b...)
	for {
		kind, body, ok := c.next()
		if !ok {
			return len(b), nil
		}
		switch kind {
		case 'Q', 'S':
			if kind == 'Q' {
				c.run = append(c.run, text(body))
			}
			if err := c.send(c.statement()); err != nil {
				return 0, err
			}
		case 'P':
			name, rest, _ := strings.Cut(string(body), "\x00")
			c.named[name] = text([]byte(rest))
			c.parsed = append(c.parsed, c.named[name])
		case 'B':
			_, rest, _ := strings.Cut(string(body), "\x00")
			c.run = append(c.run, c.named[text([]byte(rest))])
		case 'D', 'E', 'C': // a part of the statement
		default: // the start, passwords, data of a COPY, the end
			if err := c.forward(); err != nil {
				return 0, err
			}
		}
	}
}

// next is the next whole message that was written.
func (c *wireConn) next() (kind byte, body []byte, ok bool) {
	rest, head := c.pending[c.whole:], 5
	if !c.begun {
		head = 4
	}
	if len(rest) < head {
		return 0, nil, false
	}
	size := head - 4 + int(binary.BigEndian.Uint32(rest[head-4:]))
	if len(rest) < size {
		return 0, nil, false
	}
	c.whole += size
	if c.begun {
		return rest[0], rest[head:size], true
	}
	c.begun = true
	fields := strings.Split(string(rest[head:size]), "\x00")
	for i := range len(fields) - 1 {
		if fields[i] == "application_name" {
			c.app = fields[i+1]
		}
	}
	return 0, nil, true
}

func text(body []byte) string {
	s, _, _ := strings.Cut(string(body), "\x00")
	return strings.Join(strings.Fields(s), " ")
}

func (c *wireConn) statement() Statement {
	defer func() { c.parsed, c.run = nil, nil }()
	if len(c.run) == 0 {
		return Statement{c.app, "parse: " + strings.Join(c.parsed, "; ")}
	}
	return Statement{c.app, strings.Join(c.run, "; ")}
}

// send does with a statement what the test decides.
func (c *wireConn) send(s Statement) error {
	fate := c.wire.fate(s)
	c.mu.Lock()
	c.fate = fate
	c.mu.Unlock()
	switch fate {
	case Unsent:
		_ = c.Close()
		return errCut
	case Refused: // the server says so itself, so that what becomes of a transaction is its own
		c.pending = append(failing, c.pending[c.whole:]...)
		c.whole = len(failing)
	case Pass, Unanswered, Unheard:
	}
	return c.forward()
}

// failing is a simple query that fails as one that was cancelled.
var failing = func() []byte {
	const sql = "DO $$ BEGIN RAISE EXCEPTION 'refused by the test' USING ERRCODE = '57014'; END $$\x00"
	return append(binary.BigEndian.AppendUint32([]byte{'Q'}, uint32(4+len(sql))), sql...)
}()

func (c *wireConn) forward() error {
	_, err := c.Conn.Write(c.pending[:c.whole])
	c.pending, c.whole = append([]byte(nil), c.pending[c.whole:]...), 0
	return err
}

func (c *wireConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		c.mu.Lock()
		fate := c.fate
		if fate == Unanswered {
			c.tail = append(c.tail, b[:n]...)
		}
		c.mu.Unlock()
		switch {
		case err != nil || fate == Pass || fate == Refused:
			return n, err
		case fate == Unanswered && answered(c.tail):
			_ = c.Close()
			return 0, errCut
		}
	}
}

// answered reports whether the server's messages end with the one that says it is ready for the
// next statement.
func answered(b []byte) bool {
	for len(b) >= 5 {
		size := 1 + int(binary.BigEndian.Uint32(b[1:]))
		if len(b) < size {
			return false
		}
		if b[0] == 'Z' {
			return true
		}
		b = b[size:]
	}
	return false
}
