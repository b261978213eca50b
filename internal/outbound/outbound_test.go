package outbound

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

func need(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func allow(t *testing.T, list ...string) Allow {
	t.Helper()
	a, err := ParseAllow(list)
	need(t, err)
	return a
}

func TestKinds(t *testing.T) {
	for addr, want := range map[string]Kind{
		"8.8.8.8": Public, "172.15.255.255": Public, "172.32.0.0": Public, "2606:4700::1111": Public, "::ffff:8.8.8.8": Public, "64:ff9b::8.8.8.8": Public,
		"127.0.0.1": Loopback, "127.255.0.9": Loopback, "::1": Loopback, "::ffff:127.0.0.1": Loopback, "64:ff9b::127.0.0.1": Loopback,
		"0.0.0.0": Unspecified, "0.1.2.3": Unspecified, "::": Unspecified, "::ffff:0.0.0.0": Unspecified,
		"169.254.1.1": LinkLocal, "fe80::1": LinkLocal, "fe80::1%eth0": LinkLocal,
		"169.254.169.254": Metadata, "::ffff:169.254.169.254": Metadata, "64:ff9b::a9fe:a9fe": Metadata, "fd00:ec2::254": Metadata, "100.100.100.200": Metadata,
		"10.0.0.1": Private, "172.16.0.1": Private, "172.31.255.255": Private, "192.168.1.1": Private, "100.64.0.1": Private, "fd12::1": Private, "fec0::1": Private,
		"224.0.0.1": Multicast, "ff02::1": Multicast, "255.255.255.255": Reserved, "192.0.2.1": Reserved, "198.18.0.1": Reserved,
		"2002:7f00:1::": Reserved, "2002:808:808::": Reserved, "2001::1": Reserved, "2001:db8::1": Reserved, "::8.8.8.8": Reserved, "64:ff9b:1::1": Reserved, "4000::1": Reserved,
	} {
		if got := KindOf(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
	if KindOf(netip.Addr{}) == Public {
		t.Error("no address is public")
	}
}

func TestWhatIsListedIsCalled(t *testing.T) {
	for _, c := range []struct {
		list     string
		host, to string
		want     bool
	}{
		{"", "h:80", "8.8.8.8:80", true},
		{"", "h:80", "10.0.0.7:80", false},
		{"10.0.0.0/8", "h:80", "10.0.0.7:80", true},
		{"10.0.0.0/8", "h:80", "[::ffff:10.0.0.7]:80", true},
		{"10.0.0.0/8", "h:80", "[64:ff9b::10.0.0.7]:80", true},
		{"10.0.0.0/8", "h:80", "192.168.0.7:80", false},
		{"10.0.0.7", "h:80", "10.0.0.8:80", false},
		{"10.0.0.7:80", "h:80", "10.0.0.7:80", true},
		{"10.0.0.7:80", "h:81", "10.0.0.7:81", false},
		{"[fd12::1]:80", "h:80", "[fd12::1]:80", true},
		{"fe80::/10", "h:80", "[fe80::1%eth0]:80", true},
		{"hooks.internal:80", "Hooks.Internal.:80", "10.0.0.7:80", true},
		{"hooks.internal:80", "hooks.internal:80", "127.0.0.1:80", true},
		{"hooks.internal:80", "hooks.internal:81", "10.0.0.7:81", false},
		{"hooks.internal:80", "evil.internal:80", "10.0.0.7:80", false},
		// A name that is listed may come to mean something else.
		{"hooks.internal:80", "hooks.internal:80", "169.254.169.254:80", false},
		{"hooks.internal:80", "hooks.internal:80", "169.254.0.1:80", false},
		{"169.254.0.0/16", "h:80", "169.254.169.254:80", false},
		{"0.0.0.0/0", "h:80", "169.254.169.254:80", false},
		{"fc00::/7", "h:80", "[fd00:ec2::254]:80", false},
		{"169.254.169.254", "h:80", "169.254.169.254:80", true},
		{"169.254.169.254:80", "h:80", "169.254.169.254:80", true},
	} {
		var list []string
		if c.list != "" {
			list = strings.Split(c.list, ",")
		}
		if _, got := allow(t, list...).judge(c.host, netip.MustParseAddrPort(c.to)); got != c.want {
			t.Errorf("%s lists %q: %s may be called: %v", c.host, c.list, c.to, got)
		}
	}
}

func TestEntriesThatAreNone(t *testing.T) {
	for _, entry := range []string{"", "hooks", "hooks:", ":80", "hooks:http", "hooks:0", "hooks:70000", "http://hooks:80", "*.internal:80", "10.0.0.0/40", "a b:80", "::ffff:10.0.0.0/104"} {
		if _, err := ParseAllow([]string{"10.0.0.0/8", entry}); err == nil || !strings.Contains(err.Error(), "--outbound-allow") {
			t.Errorf("%q: %v", entry, err)
		}
	}
}

// However an IPv4 address is written, it is of one kind; and nothing is public that package netip
// takes for special.
func TestPropertyKinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v4 := netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "v4")))
		want := KindOf(v4)
		b := v4.As4()
		mapped := netip.AddrFrom16(v4.As16())
		nat := netip.AddrFrom16([16]byte{0, 0x64, 0xff, 0x9b, 12: b[0], b[1], b[2], b[3]})
		if got := KindOf(mapped); got != want {
			t.Fatalf("%s: %s, %s: %s", v4, want, mapped, got)
		}
		if got := KindOf(nat); got != want {
			t.Fatalf("%s: %s, %s: %s", v4, want, nat, got)
		}
		for _, other := range []netip.Addr{
			netip.AddrFrom16([16]byte{0x20, 0x02, b[0], b[1], b[2], b[3], 15: 1}), netip.AddrFrom16([16]byte{12: b[0], b[1], b[2], b[3]}),
		} {
			if KindOf(other) == Public {
				t.Fatalf("%s is public", other)
			}
		}
		any := netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "v6")))
		for _, ip := range []netip.Addr{v4, any, any.WithZone("eth0")} {
			special := ip.IsLoopback() || ip.IsPrivate() || ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() || !ip.IsGlobalUnicast()
			if special && KindOf(ip) == Public {
				t.Fatalf("%s is public", ip)
			}
		}
	})
}

func FuzzAllow(f *testing.F) {
	f.Add("10.0.0.0/8", "hooks:80", "10.0.0.7:80")
	f.Add("hooks:80", "hooks:80", "169.254.169.254:80")
	f.Fuzz(func(t *testing.T, entry, host, to string) {
		a, err := ParseAllow([]string{entry})
		addr, e := netip.ParseAddrPort(to)
		if err != nil || e != nil {
			return
		}
		kind, ok := a.judge(host, addr)
		if !ok && kind == Public {
			t.Fatalf("%s is public and may not be called", addr)
		}
		if p, err := netip.ParsePrefix(entry); err == nil && ok && kind == Metadata && !p.IsSingleIP() {
			t.Fatalf("%s lists %s", entry, addr)
		}
	})
}

// A name is judged by what it stands for when it is connected to; the error names the address and
// the flag.
func TestDialJudgesWhatIsConnectedTo(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "http://169.254.169.254/", http.StatusFound)
		}
	}))
	t.Cleanup(s.Close)
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	need(t, err)
	strict := New(Config{Metric: "pushmesh_store_outbound_refused_total"})
	_, err = strict.Dial(t.Context(), "tcp", "localhost:"+port)
	refused := (*RefusedError)(nil)
	if !errors.As(err, &refused) || refused.Kind != Loopback || refused.Host != "localhost:"+port {
		t.Fatalf("localhost: %v", err)
	}
	if text := err.Error(); !strings.Contains(text, "--outbound-allow") || !strings.Contains(text, refused.Addr.String()) {
		t.Errorf("the error does not help: %s", text)
	}
	if n := testutil.ToFloat64(strict.refused.WithLabelValues("loopback")); n != 1 {
		t.Errorf("%v refusals counted", n)
	}
	client, end := New(Config{Metric: "pushmesh_store_outbound_refused_total", Allow: allow(t, "127.0.0.1:"+port)}).Client(0)
	t.Cleanup(end)
	for path, want := range map[string]int{"/": http.StatusOK, "/away": http.StatusFound} {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, s.URL+path, http.NoBody)
		need(t, err)
		resp, err := client.Do(req)
		need(t, err)
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
		}
	}
}

func TestURLs(t *testing.T) {
	for raw, want := range map[string]bool{
		"http://h": true, "https://h:1/x?y": true, "ftp://h": false, "http://": false, "http://u@h": false, "http://u:s3cr3t@h": false, "http://u:s3cr3t@h:x": false, "file:///etc/passwd": false,
	} {
		_, err := CheckURL(raw)
		if (err == nil) != want || err != nil && strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v", raw, err)
		}
	}
}
