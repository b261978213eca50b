package cli

import (
	"strings"
	"testing"
)

func TestTopOnce(t *testing.T) {
	t.Parallel()
	m := startMesh(t, t.TempDir())
	sub := start(t, nil, with(m.edge, "sub", "room/1")...)
	sub.says("subscribed to")
	must(t, "", with(m.router, "pub", "room/1", "hello")...)
	// Nothing here is a terminal. A machine that stands still makes nodes silent: it is asked
	// again.
	for tries := 1; ; tries++ {
		out, missing := must(t, "", with(m.router, "top", "--every", "100ms", "--sort", "load")...), ""
		for _, want := range []string{"4 nodes", "published/s", "EDGES", "dev-edge", "ROUTERS", "dev-router", "STORES", "dev-store", "1024", "COMPUTE", "dev-compute"} {
			if !strings.Contains(out, want) {
				missing = want
			}
		}
		if missing == "" && !strings.Contains(out, "silent") {
			break
		}
		if tries == 20 {
			t.Fatalf("%q is not in it, or a node does not answer:\n%s", missing, out)
		}
	}
}
