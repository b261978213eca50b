package develop

import (
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/dev"
)

// What a new user sees last is the link to the playground, with nothing beside it.
func TestTheLinkComesLastAndAlone(t *testing.T) {
	var out strings.Builder
	printNext(&out, dev.Addrs{Edge: "127.0.0.1:7400", Router: "127.0.0.1:7401", Playground: "http://127.0.0.1:7484/"})
	if !strings.HasSuffix(out.String(), "\n\nOpen in a browser:\n\n  http://127.0.0.1:7484/\n\n") {
		t.Errorf("it ends with\n%s", out.String())
	}
	if n := strings.Count(out.String(), "http://"); n != 1 {
		t.Errorf("%d links are there:\n%s", n, out.String())
	}
	out.Reset()
	printNext(&out, dev.Addrs{Edge: "127.0.0.1:7400", Router: "127.0.0.1:7401"})
	if strings.Contains(out.String(), "browser") || !strings.HasSuffix(out.String(), "the messages stay.\n") {
		t.Errorf("without a playground it says\n%s", out.String())
	}
}
