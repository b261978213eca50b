package mesh

import (
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/where"
)

// filtersWaiting bounds the content filters that wait to be compiled: one goroutine does, which takes milliseconds for long ones.
const filtersWaiting = 16_384

// Filter has a content filter compiled.
func (m *Mesh) Filter(conn exchange.Conn, sub uint32, filter, text string) {
	ok := m.compiling.TryDo(filtersWaiting, func() {
		id, err := m.wheres.Add(where.Key{Conn: conn, Sub: sub}, filter, text)
		m.Post(conn.Loop, exchange.Filtered{Conn: conn, Sub: sub, Program: id, Err: err})
	})
	if !ok {
		m.Post(conn.Loop, exchange.Filtered{Conn: conn, Sub: sub, Err: code.Retry(wirev1.Code_CODE_OVERLOADED, time.Second, "too many content filters wait to be compiled")})
	}
}

// Unfilter ends the Filter of a subscription.
func (m *Mesh) Unfilter(conn exchange.Conn, sub uint32) {
	m.compiling.Do(func() { m.wheres.Remove(where.Key{Conn: conn, Sub: sub}) })
}
