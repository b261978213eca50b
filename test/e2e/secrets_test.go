package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/test/procmesh"
)

// marker is a password that nobody may see who lists processes, reads logs or asks for metrics.
const marker = "s3cr3t-marker"

func withPassword(t *testing.T, of, host, database string) string {
	t.Helper()
	u, err := url.Parse(of)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(u.User.Username(), marker)
	if host != "" {
		u.Host = host
	}
	if database != "" {
		u.Path = "/" + database
	}
	return u.String()
}

// A database's password is in the environment of stores alone: not in arguments, logs, metrics or
// what /readyz says, whether the database can be reached or not.
func TestThePasswordOfADatabaseIsNotShown(t *testing.T) {
	t.Parallel()
	real := pgtest.New(t).URL()
	m := procmesh.Start(t, procmesh.Options{DB: withPassword(t, real, "", ""), StoreArgs: []string{"--log-level", "debug"}})
	store := m.Stores[0]
	if env := shown(t, fmt.Sprintf("/proc/%d/environ", store.PID())); !bytes.Contains(env, []byte(marker)) {
		t.Fatal("the store has no such password")
	}
	hidden(t, "arguments", shown(t, fmt.Sprintf("/proc/%d/cmdline", store.PID())))
	tellsNobody(t, store)
	for _, c := range []struct{ what, url, says string }{
		{"nobody listens", withPassword(t, real, "127.0.0.1:1", ""), "127.0.0.1"},
		{"no such database", withPassword(t, real, "", "none"), "none"},
		{"no such port", "postgres://u:" + marker + "@127.0.0.1:port/x", "url"},
		{"no such encoding", "postgres://u:" + marker + "%zz@127.0.0.1/x", "url"},
		{"no such setting", withPassword(t, real, "", "") + "&pool_max_conns=x", "pool_max_conns"},
		{"no such kind", "mysql://u:" + marker + "@127.0.0.1/x", "--db"},
	} {
		store.Kill()
		store.Env = []string{"PUSHMESH_DB=" + c.url, "PUSHMESH_PLAIN_TIERS=true"}
		before := len(shown(t, store.Log))
		restart(t, store)
		procmesh.Await(t, c.what+" is said", func() bool {
			return strings.Contains(string(shown(t, store.Log)[before:]), c.says)
		})
		if store.Running() {
			tellsNobody(t, store)
		}
	}
	hidden(t, "the store's log", shown(t, store.Log))
}

// tellsNobody looks at what a process says of itself.
func tellsNobody(t *testing.T, p *procmesh.Process) {
	t.Helper()
	for _, path := range []string{"/metrics", "/readyz?verbose", "/livez"} {
		resp, err := http.Get("http://" + p.HTTP + path)
		if err != nil {
			continue // it does not serve yet, or has ended
		}
		var body bytes.Buffer
		_, err = body.ReadFrom(resp.Body)
		if err == nil {
			err = resp.Body.Close()
		}
		if err != nil {
			t.Error(err)
		}
		hidden(t, path, body.Bytes())
	}
}

func hidden(t *testing.T, where string, text []byte) {
	t.Helper()
	if at := bytes.Index(text, []byte(marker)); at >= 0 {
		t.Errorf("%s shows the password: …%s", where, text[max(0, at-200):min(len(text), at+len(marker)+50)])
	}
}

func shown(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file) // #nosec G304 -- the test's own
	if err != nil {
		t.Fatal(err)
	}
	return text
}
