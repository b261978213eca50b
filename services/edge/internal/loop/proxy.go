package loop

import (
	"errors"
	"net/netip"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/proxyproto"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
)

var badHeader = code.New(wirev1.Code_CODE_BAD_FRAME, "the header of the PROXY protocol is malformed")

// unwrap takes the header off what a proxy sends first, before anything else looks at it, and has
// the door judge whom it names. behind is what comes after the header, and lies in fresh; ok is
// false where the header has not come whole, or says what ends the connection.
func (l *Loop) unwrap(slot uint32, p *peer, fresh []byte) (behind []byte, ok bool) {
	b := fresh
	if p.rest != nil {
		l.peers.put(p.rest, len(p.rest.bytes), fresh)
		b = p.rest.bytes
	}
	if !proxyproto.Begins(b[0]) { // the proxy speaks for itself
		p.marks &^= fromProxy
		return fresh, true
	}
	l.spend(p, 1)
	client, n, err := proxyproto.Read(b)
	if errors.Is(err, proxyproto.ErrMore) {
		if p.rest == nil {
			l.peers.keep(p, b)
		}
		return nil, false
	}
	p.marks &^= fromProxy
	if err != nil {
		l.peers.keep(p, nil)
		l.hub.Refuse(slot, badHeader)
		return nil, false
	}
	behind = fresh[len(fresh)-(len(b)-n):] // the header ends in fresh: before, it was not whole
	l.peers.keep(p, nil)
	l.stats.ProxyHeaders++
	if !client.IsValid() {
		return behind, len(behind) > 0
	}
	place, why := l.door.EnterFrom(client, l.clock.at)
	if why != nil {
		l.refused(client, why)
		l.hub.Refuse(slot, why)
		return nil, false
	}
	l.setPlace(slot, place)
	l.peers.setClient(slot, client.As16())
	return behind, len(behind) > 0
}

// setClient notes whom a proxy connects for. It takes no memory where no proxy does.
func (s *peers) setClient(slot uint32, client [16]byte) {
	if client == ([16]byte{}) && int(slot) >= s.clients.Len() {
		return
	}
	for s.clients.Len() <= int(slot) {
		s.clients.Take()
	}
	*s.clients.At(int(slot)) = client
}

// origin is the address for which what a connection has counts; "" where it is exempt,
// or a proxy that speaks for itself.
func (l *Loop) origin(slot uint32) string {
	if int(slot) < l.peers.clients.Len() {
		if client := *l.peers.clients.At(int(slot)); client != ([16]byte{}) {
			return l.door.Origin(netip.AddrFrom16(client))
		}
	}
	addr := poll.Peer(int(l.peers.get(slot).fd))
	if l.door.Proxy(addr) || l.door.Forwards(addr) {
		return ""
	}
	return l.door.Origin(addr)
}
