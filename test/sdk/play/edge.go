package play

import (
	"bufio"
	"net"
	"sync"
	"time"
)

// edge listens, and puts up the connections that come.
type edge struct {
	name  string
	stage *stage
	addr  string
	ln    net.Listener // nil: it refuses connections
	wg    sync.WaitGroup

	mu    sync.Mutex
	conns []*conn
}

func newEdge(s *stage, name string) (*edge, error) {
	e := &edge{name: name, stage: s, addr: "127.0.0.1:0"}
	return e, e.listen()
}

func (e *edge) listen() error {
	ln, err := net.Listen("tcp", e.addr)
	if err != nil {
		return err
	}
	e.ln, e.addr = ln, ln.Addr().String()
	e.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			e.take(c)
		}
	})
	return nil
}

func (e *edge) take(nc net.Conn) {
	c := &conn{edge: e, board: e.stage.board, raw: &rawConn{Conn: nc, in: bufio.NewReader(nc)}, at: time.Now()}
	e.mu.Lock()
	e.conns = append(e.conns, c)
	e.mu.Unlock()
	e.stage.board.post(func() { e.stage.conns = append(e.stage.conns, c) })
	e.wg.Go(c.serve)
}

func (e *edge) refuse() {
	if e.ln != nil {
		_ = e.ln.Close() // it fails on a closed one alone
		e.ln = nil
	}
}

func (e *edge) stop() {
	e.refuse()
	e.mu.Lock()
	conns := e.conns
	e.mu.Unlock()
	for _, c := range conns {
		_ = c.raw.Close()
	}
	e.wg.Wait()
}
