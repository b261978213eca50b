package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Operators give clients' sessions to users: one, all of a client, or what a file says, of which
// lines that fail are named and the others done; done again it changes nothing.
func TestSessionsAreAdopted(t *testing.T) {
	t.Parallel()
	m := startMesh(t, t.TempDir())
	for _, of := range []string{"phone/inbox", "phone/jobs", "tablet/inbox", "desk/inbox", "car/inbox"} {
		client, session, _ := strings.Cut(of, "/")
		sub := start(t, nil, with(m.edge, "sub", "room/1", "--client-id", client, "--session", session, "--ack")...)
		sub.says("subscribed to")
		t.Cleanup(func() {
			if sub.wait(); sub.code == 0 || !strings.Contains(sub.err.String(), "SESSION_TAKEN_OVER") {
				t.Errorf("whose session %s was adopted: exit code %d, %q", of, sub.code, sub.err.String())
			}
		})
	}
	adopt := func(in, want string, args ...string) {
		t.Helper()
		if out := must(t, in, with(m.router, append([]string{"session", "adopt"}, args...)...)...); out != want+"\n" {
			t.Errorf("adopt %q prints %q, want %q", args, out, want)
		}
	}
	owners := func(want ...string) {
		t.Helper()
		var got []string
		for line := range strings.Lines(must(t, "", with(m.router, "session", "list")...)) {
			got = append(got, strings.Join(strings.Fields(line)[:2], "/"))
		}
		if got := strings.Join(got[1:], " "); got != strings.Join(want, " ") {
			t.Errorf("sessions: %s, want %s", got, want)
		}
	}
	adopt("", "2 would be adopted, 0 adopted before, 0 clients without sessions, 0 failed", "--client", "phone", "--user", "ann", "--dry-run")
	owners("client:car/inbox", "client:desk/inbox", "client:phone/inbox", "client:phone/jobs", "client:tablet/inbox")
	adopt("", "2 adopted, 0 adopted before, 0 clients without sessions, 0 failed", "--client", "phone", "--user", "ann")
	adopt("", "0 adopted, 0 adopted before, 1 clients without sessions, 0 failed", "--client", "phone", "--user", "ann")
	adopt("", "0 adopted, 1 adopted before, 0 clients without sessions, 0 failed", "--client", "phone", "--user", "ann", "--session", "jobs")

	file := filepath.Join(t.TempDir(), "clients.csv")
	lines := "client,user\n" + "tablet,ann\n" + "\n" + `{"client": "desk", "user": "bob", "session": "inbox", "as": "desk"}` + "\n" + "nobody,eve\n" + "x\n" + `{"clint": "x"}` + "\n" + "car,a/b\n"
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	told := regexp.MustCompile(`(?m)^line (\d+): `)
	c := ran(t, "", with(m.router, "session", "adopt", "--file", file)...)
	var failed []string
	for _, one := range told.FindAllStringSubmatch(c.err.String(), -1) {
		failed = append(failed, one[1])
	}
	if c.code != 1 || len(failed) != 4 || !strings.Contains(c.err.String(), `line 2: "client:tablet": session "inbox": ALREADY_EXISTS`) ||
		!strings.Contains(c.err.String(), `line 8: "client:car": session "inbox": INVALID_ARGUMENT: to_user`) ||
		!strings.Contains(c.out.String(), "1 adopted, 0 adopted before, 1 clients without sessions, 4 failed") {
		t.Errorf("adopt --file: exit code %d, %q, %q", c.code, c.out.String(), c.err.String())
	}
	owners("ann/inbox", "ann/jobs", "bob/desk", "client:car/inbox", "client:tablet/inbox")
	adopt("tablet,ann,inbox,inbox-2\n\"car\",\"cid\"\ndesk,bob,inbox,desk", "2 adopted, 1 adopted before, 0 clients without sessions, 0 failed", "--file", "-")
	owners("ann/inbox", "ann/inbox-2", "ann/jobs", "bob/desk", "cid/inbox")
	for _, args := range [][]string{
		{},
		{"--client", "x"},
		{"--user", "x"},
		{"--file", "-", "--client", "x"},
		{"--client", "x", "--user", "y", "--as", "z"},
		{"--backend-client", "x"},
		{"--backend-client", "x", "--backend", "y", "--session", "s", "--as", "t"},
		{"--client", "x", "--user", "y", "--backend-client", "x", "--backend", "y"},
	} {
		if c := ran(t, "", with(m.router, append([]string{"session", "adopt"}, args...)...)...); c.code != 2 {
			t.Errorf("adopt %q: exit code %d, %q", args, c.code, c.err.String())
		}
	}
	if c := ran(t, "", with(m.router, "session", "adopt", "--client", "phone", "--user", "eve", "--session", "inbox")...); c.code != 1 || !strings.Contains(c.err.String(), "NOT_FOUND") {
		t.Errorf("adopting what is not there: exit code %d, %q", c.code, c.err.String())
	}
}
