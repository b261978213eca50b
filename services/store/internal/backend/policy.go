package backend

import (
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// ReadPolicy decodes the policy of a namespace as a backend keeps it. A newer version of the
// program may have written what this one can't decode: that does not keep the other namespaces from
// being read. The namespace then says that it is not understood, so that nobody takes what could be
// decoded for the policy.
func ReadPolicy(ns *pushmeshv1.Namespace, decode func(policy proto.Message) error) {
	ns.Policy = &pushmeshv1.Policy{}
	if err := decode(ns.Policy); err != nil {
		ns.Policy, ns.NotUnderstood = &pushmeshv1.Policy{}, "the store can't decode the policy: "+err.Error()
	}
}
