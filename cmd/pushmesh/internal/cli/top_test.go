package cli

import (
	"strings"
	"testing"
)

func TestTopOnce(t *testing.T) {
	m := startMesh(t, t.TempDir())
	sub := start(t, nil, with(m.edge, "sub", "room/1")...)
	sub.says("subscribed to")
	must(t, "", with(m.router, "pub", "room/1", "hello")...)
	// Nothing here is a terminal.
	out := must(t, "", with(m.router, "top", "--every", "100ms", "--sort", "load")...)
	for _, want := range []string{"4 nodes", "published/s", "EDGES", "dev-edge", "ROUTERS", "dev-router", "STORES", "dev-store", "1024", "COMPUTE", "dev-compute"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if strings.Contains(out, "silent") {
		t.Errorf("a node does not answer:\n%s", out)
	}
}
