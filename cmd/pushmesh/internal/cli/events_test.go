package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
)

// A backend's shell hears of connections: each event is a line of JSON.
func TestEventsArePrinted(t *testing.T) {
	t.Parallel()
	m := startMesh(t, t.TempDir())
	c := start(t, strings.NewReader(""), append([]string{"events", "connect", "--count", "1"}, m.router...)...)
	c.says("subscribed to $events/connect/#") // its own connection came before
	for deadline := time.Now().Add(patience); !c.over(); {
		// edges hear a little later that somebody listens
		if one := ran(t, "", append([]string{"sub", "room/1", "--client-id", "ann", "--timeout", "100ms"}, m.edge...)...); one.code != 0 && one.code != cmdline.ExitTimeout {
			t.Fatalf("sub: exit code %d, %s", one.code, one.err.String())
		}
		if time.Now().After(deadline) {
			t.Fatal("no event: ", c.err.String())
		}
	}
	var e struct {
		Source, Number string
		Connect        struct{ Connection struct{ ClientID string } }
	}
	if err := json.Unmarshal([]byte(c.out.String()), &e); err != nil || c.wait() != 0 || e.Connect.Connection.ClientID != "ann" || e.Source == "" || e.Number == "" {
		t.Errorf("%v: %s %s", err, c.out.String(), c.err.String())
	}
	if c := ran(t, "", append([]string{"events", "nonsense"}, m.router...)...); c.code != 2 {
		t.Errorf("exit code %d, %s", c.code, c.err.String())
	}
}

// over reports whether the command has ended.
func (c *command) over() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}
