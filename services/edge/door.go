package edge

import (
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/admission"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
)

// otherFiles are descriptors that connections leave to the rest of the edge: subscribers may take
// the last of what they have, and NATS, stores and scrapes still get through.
const otherFiles = 100

// newDoor makes what counts the connections of all loops.
func (e *Edge) newDoor() (*admission.Door, error) {
	s := e.settings
	exempt, err := admission.ParsePrefixes("exempt-from", s.ExemptFrom)
	if err != nil {
		return nil, err
	}
	proxies, err := admission.ParsePrefixes("proxy-protocol-from", s.ProxyProtocolFrom)
	if err != nil {
		return nil, err
	}
	forwarders, err := admission.ParsePrefixes("forwarded-from", s.ForwardedFrom)
	if err != nil {
		return nil, err
	}
	files, err := poll.MostFiles()
	if err != nil {
		return nil, err
	}
	e.maxConnections = min(s.MaxConnections, max(files-otherFiles, files/2))
	return admission.New(admission.Limits{
		Connections: e.maxConnections, AddressConnections: s.MaxAddressConnections, Rate: s.AcceptRate, AddressRate: s.AddressAcceptRate, Exempt: exempt, Proxies: proxies, Forwarders: forwarders,
	}), nil
}
