package policy

import "github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"

// UsesModel reports whether a namespace ranks by that version of a model, or gives it a share;
// newest says that the version is what a policy without one means.
func UsesModel(ns *pushmeshv1.Namespace, name string, version uint64, newest bool) bool {
	m := ns.GetPolicy().GetRank().GetModel()
	if m == nil || m.GetName() != name {
		return false
	}
	return m.GetVersion() == version || m.GetNextVersion() == version || m.GetVersion() == 0 && newest
}
