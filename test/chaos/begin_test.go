package chaos

import (
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/test/procmesh"
)

// namespace of all traffic here, durable. It does not come with the mesh: a process that is killed
// and begins again must ask for it before it serves.
const namespace = "chaos"

// begin starts a mesh that has the namespace.
func begin(t *testing.T, o procmesh.Options) *procmesh.Mesh {
	t.Helper()
	m := procmesh.Start(t, o)
	m.Namespace(t, namespace, &pushmeshv1.Policy{Durable: true})
	return m
}
