// Package link is a network between processes that can break: a TCP proxy that cuts the connections
// of some of its clients, or stops passing on what they say, what is said to them, or both. What
// was stopped is passed on afterwards, as TCP would.
package link

import (
	"net"
	"sync"
	"testing"
)

// Fault of a client's connections, those it has and those it makes.
type Fault struct {
	// Cut ends them and refuses new ones.
	Cut bool
	// Up stops what the client says, Down what is said to it.
	Up, Down bool
}

// Link passes connections on to one server. It ends with the test.
type Link struct {
	target   string
	listener net.Listener
	who      func(client net.Addr) string
	wg       sync.WaitGroup

	mu     sync.Mutex
	turn   *sync.Cond // a fault changed, or the link ended
	faults map[string]Fault
	conns  map[net.Conn]string // both ends → client
	ended  bool
}

// New makes a link to target. who names clients by the address they connect from; nil: all are "".
func New(t testing.TB, target string, who func(client net.Addr) string) *Link {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if who == nil {
		who = func(net.Addr) string { return "" }
	}
	l := &Link{target: target, listener: ln, who: who, faults: map[string]Fault{}, conns: map[net.Conn]string{}}
	l.turn = sync.NewCond(&l.mu)
	l.wg.Go(l.accept)
	t.Cleanup(l.end)
	return l
}

// Addr that clients connect to.
func (l *Link) Addr() string { return l.listener.Addr().String() }

// Set has the connections of a client suffer f from now on; Fault{} is none.
func (l *Link) Set(client string, f Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults[client] = f
	l.turn.Broadcast()
	if f.Cut {
		l.cut(func(of string) bool { return of == client })
	}
}

// Connections that a client has now.
func (l *Link) Connections(client string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range l.conns {
		if of == client {
			n++
		}
	}
	return n / 2
}

// cut closes connections. Called with l.mu held.
func (l *Link) cut(which func(client string) bool) {
	for c, of := range l.conns {
		if which(of) {
			_ = c.Close()
		}
	}
}

func (l *Link) end() {
	_ = l.listener.Close()
	l.mu.Lock()
	l.ended = true
	l.turn.Broadcast()
	l.cut(func(string) bool { return true })
	l.mu.Unlock()
	l.wg.Wait()
}

func (l *Link) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.wg.Go(func() { l.connect(client) })
	}
}

func (l *Link) connect(client net.Conn) {
	who := l.who(client.RemoteAddr())
	server, err := net.Dial("tcp", l.target)
	if err != nil {
		_ = client.Close()
		return
	}
	l.mu.Lock()
	if l.ended || l.faults[who].Cut {
		l.mu.Unlock()
		_, _ = client.Close(), server.Close()
		return
	}
	l.conns[client], l.conns[server] = who, who
	l.mu.Unlock()
	l.wg.Go(func() { l.pass(who, server, client, func(f Fault) bool { return f.Down }) })
	l.pass(who, client, server, func(f Fault) bool { return f.Up })
}

// pass passes on in one direction, as long as it isn't stopped.
func (l *Link) pass(who string, src, dst net.Conn, stopped func(Fault) bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 && l.await(who, stopped) {
			if _, failed := dst.Write(buf[:n]); failed != nil {
				err = failed
			}
		}
		if err != nil {
			break
		}
	}
	l.await(who, stopped) // an end is not told either
	_, _ = src.Close(), dst.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, src)
	delete(l.conns, dst)
}

// await waits while the direction is stopped; false once the link has ended.
func (l *Link) await(who string, stopped func(Fault) bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.ended && !l.faults[who].Cut && stopped(l.faults[who]) {
		l.turn.Wait()
	}
	return !l.ended
}
