package chaos

import (
	"encoding/json"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/test/procmesh"
)

// examination is what `pushmesh doctor --json` prints.
type examination struct {
	Sound    bool
	Findings []struct{ Level, Check, Subject, Found, Advice string }
}

func examine(t *testing.T, m *procmesh.Mesh, args ...string) (e examination) {
	t.Helper()
	args = append([]string{"doctor", "--json", "--skew", "1h", "--router", strings.Join(m.RouterAddrs, ",")}, args...)
	out, err := exec.CommandContext(t.Context(), m.Pushmesh, args...).Output()
	if json.Unmarshal(out, &e) != nil || e.Sound != (err == nil) {
		t.Fatalf("doctor: %v: %s", err, out)
	}
	return e
}

// reports whether a finding of a level about a subject holds each text.
func (e examination) says(level, subject string, texts ...string) bool {
	for _, f := range e.Findings {
		good := f.Level == level && f.Subject == subject
		for _, text := range texts {
			good = good && strings.Contains(f.Found+" "+f.Advice, text)
		}
		if good {
			return true
		}
	}
	return false
}

// A mesh of processes on Postgres is sound. An edge that is frozen and a store that was killed are
// named at once, each with what is the matter, and still are when nobody hears of them any more.
func TestDoctorNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	m := begin(t, procmesh.Options{Edges: 2, Routers: 2, DB: pgtest.URL(t)})
	await := func(what string, ok func(examination) bool, args ...string) {
		t.Helper()
		var last examination
		defer func() {
			if t.Failed() {
				t.Logf("%s: %+v", what, last)
			}
		}()
		procmesh.Await(t, what, func() bool {
			last = examine(t, m, args...)
			return ok(last)
		})
	}
	await("a sound mesh", func(e examination) bool {
		return e.Sound && e.says("ok", "nodes", "2 edges, 2 routers, 1 store, 1 compute node") && e.says("ok", "router router-2", "a durable message", "2 edges")
	})
	m.Edges[1].Signal(syscall.SIGSTOP)
	m.Stores[0].Kill()
	await("both named", func(e examination) bool {
		return !e.Sound && e.says("fail", "edge edge-2", "no answer in time", "hangs") && e.says("fail", "store store-1", "connection refused", "the process has ended")
	}, "--no-probe", "--patience", "500ms")
	await("both not heard", func(e examination) bool {
		return !e.Sound && e.says("fail", "edge edge-2", "not heard for", "hangs") && e.says("fail", "store store-1", "not heard for", "the process has ended")
	}, "--no-probe", "--patience", "500ms")
}
