package upstream

import (
	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// wantEvents tells loops which kinds of events somebody wants: subscribers, as routers say, or the
// log, where policies make them durable. While no router says anything, what was wanted last is
// wanted on.
func (m *Mesh) wantEvents() {
	if m.cfg.Teller == nil {
		return
	}
	if kinds, told := m.routers.Events(); told {
		m.wanted = kinds
	}
	want := m.wanted | m.durable
	if want == m.told {
		return
	}
	if m.told = want; want != 0 {
		m.cfg.Teller.Open()
	}
	defer m.wantedNow.Store(uint32(want))
	for i := range len(m.loops) - 1 { // but the groups'
		m.Post(uint16(i), exchange.EventKinds{Kinds: want})
	}
}

// WantedEvents are the kinds that loops were told to be wanted.
func (m *Mesh) WantedEvents() events.Mask { return events.Mask(m.wantedNow.Load()) }

// durableEvents asks the policies anew.
func (m *Mesh) durableEvents() {
	if m.cfg.Teller != nil {
		m.durable = m.cfg.DurableEvents()
		m.wantEvents()
	}
}
