package cli

import (
	"strings"
	"testing"
)

// The connection that is closed is told why.
func TestDisconnect(t *testing.T) {
	t.Parallel()
	m := startMesh(t, t.TempDir())
	banned := start(t, nil, with(m.edge, "sub", "room/1", "--client-id", "phone")...)
	stays := start(t, nil, with(m.edge, "sub", "room/1", "--client-id", "desk", "--count", "1")...)
	banned.says("subscribed to")
	stays.says("subscribed to")
	c := ran(t, "", with(m.router, "disconnect", "--client-id", "phone", "--code", "forbidden", "--reason", "spam was sent")...)
	// an edge did it, and said so too late
	late := c.tries > 1 && c.out.String() == "0 disconnected\n"
	if c.code != 0 || c.out.String() != "1 disconnected\n" && !late {
		t.Errorf("exit code %d, it says %q, %q", c.code, c.out.String(), c.err.String())
	}
	banned.wait()
	if said := banned.err.String(); banned.code == 0 || !strings.Contains(said, "FORBIDDEN") || !strings.Contains(said, "spam was sent") {
		t.Errorf("exit code %d, says %q", banned.code, said)
	}
	if out := must(t, "", with(m.router, "disconnect", "--user", "client:phone")...); out != "0 disconnected\n" {
		t.Errorf("it says %q", out)
	}
	must(t, "", with(m.router, "pub", "room/1", "still there")...)
	if stays.wait(); stays.code != 0 {
		t.Errorf("the other one: exit code %d, %q", stays.code, stays.err.String())
	}
}

// A connection that is there gets another profile; one that is not is not counted.
func TestSetProfile(t *testing.T) {
	m := startMesh(t, t.TempDir())
	sub := start(t, nil, with(m.edge, "sub", "room/1", "--client-id", "phone", "--count", "1")...)
	sub.says("subscribed to")
	for user, want := range map[string]string{"client:phone": "1 connections\n", "client:desk": "0 connections\n"} {
		if out := must(t, "", with(m.router, "session", "set-profile", "--user", user, "sport=1", "--vector", "0.5,1")...); out != want {
			t.Errorf("%s: it says %q", user, out)
		}
	}
	must(t, "", with(m.router, "pub", "room/1", "x")...)
	if sub.wait(); sub.code != 0 {
		t.Errorf("exit code %d, %q", sub.code, sub.err.String())
	}
}
