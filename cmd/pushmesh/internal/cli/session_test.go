package cli

import (
	"regexp"
	"strings"
	"testing"
)

// Operators see who keeps what, the largest first, and remove one session, those of a user, or
// those that an address created.
func TestSessionsAreListedAndDeleted(t *testing.T) {
	t.Parallel()
	m := startMesh(t, t.TempDir())
	begin := func(client, session, filter string) *command {
		sub := start(t, nil, with(m.edge, "sub", filter, "--client-id", client, "--session", session, "--ack")...)
		sub.says("subscribed to")
		return sub
	}
	long := begin("ann", "large", "room/"+strings.Repeat("x", 200))
	begin("ann", "small", "room/1")
	begin("bob", "small", "room/1")
	list := func(args ...string) string {
		return must(t, "", with(m.router, append([]string{"session", "list"}, args...)...)...)
	}
	columns := func(out string, at ...int) (rows []string) {
		for line := range strings.Lines(out) {
			var cells []string
			for _, i := range at {
				cells = append(cells, strings.Fields(line)[i])
			}
			rows = append(rows, strings.Join(cells, " "))
		}
		return rows[1:] // without headings
	}
	equal := func(what string, got []string, want ...string) {
		t.Helper()
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s prints %q, want %q", what, got, want)
		}
	}
	equal("list", columns(list(), 0, 1, 3, 4), "client:ann large 1 1", "client:ann small 1 1", "client:bob small 1 1")
	equal("list --user", columns(list("--user", "client:bob"), 0, 1), "client:bob small")
	equal("list --limit", columns(list("--limit", "2"), 1), "large", "small")
	equal("list --by size", columns(list("--by", "size", "--limit", "1"), 0, 1), "client:ann large")
	equal("list --by user", columns(list("--by", "user"), 0, 1, 2), "client:ann 2 2", "client:bob 1 1")
	equal("list --by address", columns(list("--by", "address"), 0, 1), "127.0.0.1 3")
	equal("list --address", columns(list("--address", "192.0.2.1"), 0))
	one := list("--user", "client:bob", "--format", "json")
	if !regexp.MustCompile(`"bytes":[1-9]`).MatchString(one) || !strings.Contains(one, `"origin":"127.0.0.1"`) || !strings.Contains(one, `"created_at":"2`) {
		t.Errorf("list --format json prints %q", one)
	}
	remove := func(want string, args ...string) {
		t.Helper()
		if out := must(t, "", with(m.router, append([]string{"session", "delete"}, args...)...)...); out != want {
			t.Errorf("delete %q prints %q, want %q", args, out, want)
		}
	}
	remove("1 deleted\n", "client:ann", "large")
	if long.wait(); long.code == 0 || !strings.Contains(long.err.String(), "NOT_FOUND") {
		t.Errorf("whose session was deleted: exit code %d, %q", long.code, long.err.String())
	}
	remove("0 deleted\n", "client:ann", "--address", "192.0.2.1")
	remove("1 deleted\n", "client:ann", "--all")
	remove("1 deleted\n", "--address", "127.0.0.1")
	equal("list", columns(list(), 0))
	for _, args := range [][]string{{}, {"client:ann"}, {"--all"}, {"client:ann", "small", "--all"}, {"client:ann", "small", "--address", "192.0.2.1"}} {
		if c := ran(t, "", with(m.router, append([]string{"session", "delete"}, args...)...)...); c.code != 2 {
			t.Errorf("delete %q: exit code %d, %q", args, c.code, c.err.String())
		}
	}
	if c := ran(t, "", with(m.router, "session", "delete", "client:ann", "small")...); c.code != 1 || !strings.Contains(c.err.String(), "NOT_FOUND") {
		t.Errorf("deleting what is not there: exit code %d, %q", c.code, c.err.String())
	}
}
