package upstream

import (
	"sync/atomic"

	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// eventKinds are the kinds of events that somebody wants: subscribers, as routers say, or the log,
// where policies make them durable. The mesh's goroutine owns them, but for published.
type eventKinds struct {
	routers, policies events.Mask
	loops             events.Mask // those that loops know to be wanted
	published         atomic.Uint32
}

// update returns what is wanted now, and whether loops are to be told of it.
func (k *eventKinds) update() (want events.Mask, changed bool) {
	want = k.routers | k.policies
	changed = want != k.loops
	k.loops = want
	return want, changed
}

// publish is called once loops were told.
func (k *eventKinds) publish() { k.published.Store(uint32(k.loops)) }

// wantEvents tells loops which kinds of events somebody wants. While no router says anything, what
// was wanted last is wanted on.
func (m *Mesh) wantEvents() {
	if m.cfg.Teller == nil {
		return
	}
	if kinds, told := m.routers.Events(); told {
		m.events.routers = kinds
	}
	want, changed := m.events.update()
	if !changed {
		return
	}
	if want != 0 {
		m.cfg.Teller.Open()
	}
	for i := range m.loops.withConnections() {
		m.Post(uint16(i), exchange.EventKinds{Kinds: want})
	}
	m.events.publish()
}

// WantedEvents are the kinds that loops were told to be wanted.
func (m *Mesh) WantedEvents() events.Mask { return events.Mask(m.events.published.Load()) }

// durableEvents asks the policies anew.
func (m *Mesh) durableEvents() {
	if m.cfg.Teller != nil {
		m.events.policies = m.cfg.DurableEvents()
		m.wantEvents()
	}
}
