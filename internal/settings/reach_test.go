package settings

import (
	"net"
	"testing"
)

func TestReach(t *testing.T) {
	for _, c := range []struct{ listening, advertised, want string }{
		{"[::]:7481", "router-1:7401", "router-1:7481"},
		{"0.0.0.0:7481", "10.0.0.1:7401", "10.0.0.1:7481"},
		{"127.0.0.1:7481", "router-1:7401", "127.0.0.1:7481"},
		{"[::]:7481", "[::]:7401", "[::]:7481"},
		{"", "a:1", ""},
	} {
		if got := Reach(c.listening, c.advertised); got != c.want {
			t.Errorf("%q beside %q: %q, want %q", c.listening, c.advertised, got, c.want)
		}
	}
}

func TestAdvertised(t *testing.T) {
	for _, c := range []struct{ set, listening, want string }{
		{"h:1", "127.0.0.1:7403", "h:1"},
		{"", "127.0.0.1:7403", "127.0.0.1:7403"},
		{"", "", ""},
	} {
		if got := Advertised(c.set, c.listening); got != c.want {
			t.Errorf("%q %q: %q, want %q", c.set, c.listening, got, c.want)
		}
	}
	if host, port, err := net.SplitHostPort(Advertised("", "[::]:7403")); err != nil || port != "7403" || unspecified(host) {
		t.Errorf("host %q, port %q, %v", host, port, err)
	}
}
