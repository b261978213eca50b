package handshake

import (
	"container/list"
	"errors"
	"runtime/debug"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/tls/record"
)

var (
	errEnded   = errors.New("handshake: ended")
	errGaveWay = errors.New("handshake: ended to make room for another one")
	// errPanicked says nothing of why: the log does.
	errPanicked = errors.New("handshake: internal error")
)

// Handshake is one under way. Its goroutine computes and waits; the loop that owns the connection
// calls Feed, Waiting, Take and End.
type Handshake struct {
	pool *Pool
	conn exchange.Conn
	more chan struct{} // holds one where something has come since it was looked at

	// turn is sent to where it waits for a worker: whether it has one.
	turn     chan bool
	computes bool // has a worker; its goroutine's

	// The pool's lock guards these.
	origin   *origin
	since    time.Time     // it waits for its client
	silent   *list.Element // among those that do, of all; nil: it doesn't
	silentOf *list.Element // the same, of its origin
	queued   *list.Element // among those of its origin that wait for a worker; nil: it doesn't

	mu     sync.Mutex
	in     []byte // read, and not asked for
	out    []byte // to be sent
	end    error
	told   bool // the loop has been told, and did not Take since
	result *Result
}

// Result of a handshake.
type Result struct {
	// Conn is the connection whose hands are shaken; nil: they are not.
	Conn *record.Conn
	// Security is that of Conn.
	Security exchange.Security
	// Rest is what the client has sent beyond the handshake.
	Rest []byte
	// Code and Text say why hands were not shaken; OK: it was the client's wish.
	Code wirev1.Code
	Text string
}

// run shakes hands.
func (h *Handshake) run() {
	p := h.pool
	sent, err := Overloaded(), errEnded // or it gave way: h.end says
	c := record.Server(p.cfg.TLS, h.next)
	if h.computes = p.waitForTurn(h); h.computes {
		sent, err = h.shake(c)
	}
	p.over(h, h.computes)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.out = append(h.out, sent...)
	if err == nil && h.end == nil {
		if p.stats.full.Add(1); c.State().DidResume {
			p.stats.full.Add(^uint64(0))
			p.stats.resumed.Add(1)
		}
		h.result = &Result{Conn: c, Security: exchange.TLS}
		if p.cfg.Tier != "" && c.State().ServerName == p.cfg.Tier {
			h.result.Security = exchange.TierTLS
		}
		h.tell()
		return
	}
	if errors.Is(h.end, errGaveWay) {
		p.stats.gaveWay.Add(1)
	} else {
		p.stats.failed.Add(1)
	}
	if errors.Is(h.end, errEnded) {
		return // nobody waits for the result
	}
	why, text := reason(errors.Join(h.end, err), sent)
	h.result = &Result{Code: why, Text: text}
	h.tell()
}

// shake shakes hands with one client. What panics meanwhile, in crypto/tls or in what finds
// certificates, ends this handshake alone.
func (h *Handshake) shake(c *record.Conn) (sent []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			h.pool.cfg.Log.Error("a handshake panicked", "reason", v, "stack", string(debug.Stack()))
			sent, err = alert(alertInternalError), errPanicked
		}
	}()
	return c.Handshake()
}

// next is the record.Source: it waits for the client without keeping others from computing.
func (h *Handshake) next(sent []byte) ([]byte, error) {
	r, err := h.take(sent)
	if r != nil || err != nil {
		return r, err
	}
	p := h.pool
	p.waitsForClient(h)
	for h.computes = false; r == nil && err == nil; {
		<-h.more
		r, err = h.take(nil)
	}
	p.heard(h)
	if err != nil {
		return nil, err
	}
	if h.computes = p.waitForTurn(h); !h.computes {
		return nil, errEnded // or it gave way: h.end says
	}
	return r, nil
}

// take hands over what is to be sent, and takes a record where one has come whole.
func (h *Handshake) take(sent []byte) (r []byte, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.end != nil {
		return nil, h.end
	}
	if len(sent) > 0 {
		h.out = append(h.out, sent...)
		h.tell()
	}
	if n := record.Whole(h.in); n > 0 {
		r, h.in = h.in[:n:n], h.in[n:]
	}
	return r, nil
}

// tell has the loop Take. Where its mailbox is full nobody tells it, and the time for handshakes
// ends the connection.
func (h *Handshake) tell() {
	if !h.told {
		h.told = h.pool.cfg.Post(h.conn.Loop, exchange.HandshakeMoved{Conn: h.conn})
	}
}

// Feed takes what the client has sent.
func (h *Handshake) Feed(b []byte) {
	h.mu.Lock()
	h.in = append(h.in, b...)
	h.mu.Unlock()
	h.wake()
}

// Waiting is how many bytes of the client the handshake has not asked for.
func (h *Handshake) Waiting() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.in)
}

// Take takes what is to be sent, and the result where the handshake is over.
func (h *Handshake) Take() (sent []byte, result *Result) {
	h.mu.Lock()
	defer h.mu.Unlock()
	sent, h.out, h.told = h.out, nil, false
	if h.result != nil && h.result.Conn != nil {
		h.result.Rest, h.in = h.in, nil // what has come since too
	}
	return sent, h.result
}

// End ends the handshake of a connection that is over. One that waits leaves its place at once.
func (h *Handshake) End() {
	h.endWith(errEnded)
	h.pool.mu.Lock()
	defer h.pool.mu.Unlock()
	if h.queued != nil {
		h.pool.leave(h)
	}
}

func (h *Handshake) endWith(err error) {
	h.mu.Lock()
	if h.end == nil {
		h.end = err
	}
	h.mu.Unlock()
	h.wake()
}

func (h *Handshake) wake() {
	select {
	case h.more <- struct{}{}:
	default: // it will look anyway
	}
}
