package delivery

import (
	"testing"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Nobody is asked about the mesh's own topics, for a group either.
func TestNobodyIsAskedAboutGroupsOfOwnTopics(t *testing.T) {
	w, d, p := permitted(t, nil)
	w.table = policy.NewTable([]*pushmeshv1.Namespace{{Prefix: "open", Policy: &pushmeshv1.Policy{Durable: true}}})
	d.knows("dead", "ann", "subscribe:$dead/#")
	c := w.hello(&wirev1.Hello{Token: "dead", ClientId: "phone", HeartbeatMs: 600_000})
	c.expect("Welcome")
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "$dead/x", Group: "g"})
	p.asks()
	c.expect("Error FORBIDDEN ref=1")
}
