package policy

import (
	"errors"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// maxModelName is the most bytes of a model's name.
const maxModelName = 64

// CheckModelName says what is wrong with the name of a model.
func CheckModelName(name string) error {
	if name == "" || len(name) > maxModelName {
		return errors.New("a model's name has 1 to 64 bytes")
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return errors.New("a model's name is made of a-z, 0-9, - and _")
		}
	}
	return nil
}

// UsesModel says whether a namespace ranks by that version of a model, or gives it a share; newest says that the version is what a policy without one means.
func UsesModel(ns *pushmeshv1.Namespace, name string, version uint64, newest bool) bool {
	m := ns.GetPolicy().GetRank().GetModel()
	if m == nil || m.GetName() != name {
		return false
	}
	return m.GetVersion() == version || m.GetNextVersion() == version || m.GetVersion() == 0 && newest
}
