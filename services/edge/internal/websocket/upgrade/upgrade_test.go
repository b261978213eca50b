package upgrade

import (
	"bufio"
	"bytes"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

func asked(t testing.TB, lines ...string) *Request {
	t.Helper()
	text := "GET /?token=in-url HTTP/1.1\r\nHost: edge.example:7400\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n"
	r, n, err := Read([]byte(text+"behind"), 0)
	if err != nil || n != len(text) {
		t.Fatalf("%d of %d, %v", n, len(text), err)
	}
	return &r
}

const offers = "Sec-WebSocket-Protocol: "

func TestOrigins(t *testing.T) {
	t.Parallel()
	listed := []string{"https://app.example.com", "https://*.shop.example", "http://localhost:3000", "capacitor://localhost"}
	for _, c := range []struct {
		allowed []string
		origin  string
		ok      bool
	}{
		{nil, "", true},
		{nil, "https://edge.example:7400", true},
		{nil, "http://EDGE.example:7400", true},
		{nil, "https://edge.example", false},
		{nil, "https://edge.example.evil.com:7400", false},
		{nil, "null", false},
		{nil, "file://", false},
		{listed, "", true},
		{listed, "https://app.example.com", true},
		{listed, "https://APP.example.com:443", true},
		{listed, "http://app.example.com", false},
		{listed, "https://app.example.com:8443", false},
		{listed, "https://a.shop.example", true},
		{listed, "https://a.b.shop.example", true},
		{listed, "https://shop.example", false},
		{listed, "https://evilshop.example", false},
		{listed, "http://localhost:3000", true},
		{listed, "http://localhost", false},
		{listed, "capacitor://localhost", true},
		{listed, "https://edge.example:7400", false},
		{listed, "null", false},
		{[]string{SameHost}, "https://edge.example:7400", true},
		{[]string{SameHost}, "https://app.example.com", false},
		{append([]string{SameHost}, listed...), "https://edge.example:7400", true},
		{append([]string{SameHost}, listed...), "https://app.example.com", true},
		{append([]string{SameHost}, listed...), "https://evil.example", false},
		{append([]string{SameHost}, listed...), "null", false},
		{[]string{"*"}, "https://anybody.example", true},
		{[]string{"*"}, "null", false},
	} {
		o, err := ParseOrigins(c.allowed)
		if err != nil {
			t.Fatal(err)
		}
		lines := []string{offers + Frames}
		if c.origin != "" {
			lines = append(lines, "Origin: "+c.origin)
		}
		p := Policy{Origins: o, QueryToken: true}
		if a := p.Answer(nil, asked(t, lines...), netip.Addr{}); a.Upgraded != c.ok || !c.ok && a.Status != http.StatusForbidden {
			t.Errorf("%q of %v: %d", c.origin, c.allowed, a.Status)
		}
	}
	for _, bad := range []string{"app.example.com", "https://", "https://app.example.com/", "https://a.*.com", "https://*", "null", "", "https://u@h"} {
		if _, err := ParseOrigins([]string{bad}); !errors.Is(err, errOrigin) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// Cookies are for origins that are all named.
func TestOriginsThatAreListed(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]bool{"": false, "*": false, SameHost: false, "https://a.example": true, SameHost + ",https://a.example": false, "https://a.example,*": false} {
		o, err := ParseOrigins(strings.FieldsFunc(list, func(r rune) bool { return r == ',' }))
		if err != nil || o.Listed() != want {
			t.Errorf("%q: %v, %v", list, o.Listed(), err)
		}
	}
}

// hosted asks for a WebSocket of a host.
func hosted(t *testing.T, host string, lines ...string) (*Request, error) {
	t.Helper()
	text := "GET / HTTP/1.1\r\nHost: " + host + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" + offers + Frames + "\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n"
	r, _, err := Read([]byte(text), 0)
	return &r, err
}

// The port that a scheme has anyway makes no difference, also behind an address.
func TestOriginsOfAddresses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		allowed      []string
		host, origin string
		ok           bool
	}{
		{nil, "[2001:db8::1]:443", "https://[2001:db8::1]", true},
		{nil, "[2001:db8::1]", "https://[2001:DB8::1]:443", true},
		{nil, "[2001:db8::1]:80", "http://[2001:db8::1]", true},
		{nil, "[2001:db8::1]:80", "https://[2001:db8::1]", false},
		{nil, "[2001:db8::1]:7400", "https://[2001:db8::1]:7400", true},
		{nil, "[2001:db8::1]:7400", "https://[2001:db8::1]", false},
		{nil, "192.0.2.1:443", "https://192.0.2.1", true},
		{[]string{"https://[2001:db8::1]:443"}, "edge.example", "https://[2001:db8::1]", true},
		{[]string{"https://[2001:db8::1]"}, "edge.example", "https://[2001:db8::2]", false},
	} {
		o, err := ParseOrigins(c.allowed)
		if err != nil {
			t.Fatal(err)
		}
		r, err := hosted(t, c.host, "Origin: "+c.origin)
		if err != nil {
			t.Fatal(err)
		}
		p := Policy{Origins: o}
		if a := p.Answer(nil, r, netip.Addr{}); a.Upgraded != c.ok || !c.ok && a.Status != http.StatusForbidden {
			t.Errorf("%q at %q, of %v: %d", c.origin, c.host, c.allowed, a.Status)
		}
	}
}

// A header that comes once comes once, empty or not, and an empty origin is none of a page's.
func TestEmptyHeadersCount(t *testing.T) {
	t.Parallel()
	for _, lines := range [][]string{
		{"Host:"}, {"Host: other.example"}, {"Origin:", "Origin: https://edge.example"}, {"Origin: https://edge.example", "Origin:"}, {"Sec-WebSocket-Key:"},
	} {
		if _, err := hosted(t, "edge.example", lines...); !errors.Is(err, errTwice) {
			t.Errorf("%q: %v", lines, err)
		}
	}
	if _, err := hosted(t, "", "Host: edge.example"); !errors.Is(err, errTwice) {
		t.Errorf("an empty Host, then another: %v", err)
	}
	r, err := hosted(t, "edge.example", "Origin:")
	if err != nil {
		t.Fatal(err)
	}
	if a := (&Policy{}).Answer(nil, r, netip.Addr{}); a.Status != http.StatusForbidden {
		t.Errorf("an empty origin gets %d", a.Status)
	}
}

func TestTokensAndCookies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		p             Policy
		lines         []string
		status        int
		token, cookie string
	}{
		"in the URL, not allowed":      {Policy{}, []string{offers + Frames}, 400, "", ""},
		"in the URL":                   {Policy{QueryToken: true}, []string{offers + Frames}, 101, "in-url", ""},
		"a subprotocol":                {Policy{}, []string{offers + "bearer.a.b.c, " + Frames}, 101, "a.b.c", ""},
		"a subprotocol goes first":     {Policy{QueryToken: true}, []string{offers + Frames + ",bearer.x"}, 101, "x", ""},
		"two lines, the first is ours": {Policy{}, []string{offers + "bearer.x", offers + "other", offers + Frames}, 101, "x", ""},
		"cookies that do not count":    {Policy{}, []string{offers + Frames + ",bearer.x", "Cookie: a=1"}, 101, "x", ""},
		"cookies":                      {Policy{Cookies: true}, []string{offers + Frames + ",bearer.x", "Cookie: a=1", "Cookie: b=2"}, 101, "x", "a=1; b=2"},
	} {
		a := c.p.Answer(nil, asked(t, c.lines...), netip.Addr{})
		if a.Status != c.status || a.Cookie != c.cookie || a.Upgraded && a.Token != c.token {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

func TestForwardedFor(t *testing.T) {
	t.Parallel()
	ours := netip.MustParsePrefix("10.0.0.0/8")
	p := Policy{Forwards: ours.Contains}
	for _, c := range []struct {
		peer, header, want string
	}{
		{"10.0.0.1", "203.0.113.7", "203.0.113.7"},
		{"10.0.0.1", "1.1.1.1, 203.0.113.7, 10.0.0.2", "203.0.113.7"},
		{"10.0.0.1", "1.1.1.1, 203.0.113.7:4711", "203.0.113.7"},
		{"10.0.0.1", "2001:db8::7", "2001:db8::7"},
		{"10.0.0.1", "[2001:db8::7]:443", "2001:db8::7"},
		{"10.0.0.1", "::ffff:203.0.113.7", "203.0.113.7"},
		{"10.0.0.1", "1.1.1.1, unknown, 10.0.0.2", "10.0.0.2"},
		{"10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"},
		{"10.0.0.1", "", ""},
		{"10.0.0.1", "unknown", ""},
		{"203.0.113.1", "1.1.1.1", ""}, // no proxy of ours
	} {
		r := asked(t, offers+Frames, "X-Forwarded-For: "+c.header)
		got := p.Answer(nil, r, netip.MustParseAddr(c.peer)).Client
		if got.IsValid() != (c.want != "") || c.want != "" && got.String() != c.want {
			t.Errorf("%q from %s: %v", c.header, c.peer, got)
		}
	}
}

// What is answered is HTTP, whatever was asked, and the same however it came.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "GET /livez HTTP/1.0\r\n\r\n", "A\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: pushmesh.v1, bearer.x\r\nOrigin: https://x\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n\x81\x80",
	} {
		f.Add([]byte(s), uint8(7))
	}
	policy := Policy{Forwards: func(a netip.Addr) bool { return a.IsLoopback() }}
	peer := netip.MustParseAddr("127.0.0.1")
	f.Fuzz(func(t *testing.T, b []byte, cut uint8) {
		whole := answers(&policy, b, len(b), peer)
		if parts := answers(&policy, b, int(cut)+1, peer); !bytes.Equal(whole, parts) {
			t.Fatalf("at once %q, in parts %q", whole, parts)
		}
		if whole == nil {
			return
		}
		r, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(whole)), nil)
		if err != nil {
			t.Fatalf("%q: %v", whole, err)
		}
		if err := r.Body.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// answers hands b in, in parts; nil: it is no whole request.
func answers(p *Policy, b []byte, part int, peer netip.Addr) []byte {
	for seen, n := 0, min(part, len(b)); ; seen, n = n, min(n+part, len(b)) {
		req, used, err := Read(b[:n], seen)
		switch {
		case errors.Is(err, ErrMore) && n < len(b):
			continue
		case errors.Is(err, ErrMore):
			return nil
		case err != nil:
			return Refuse(err).Response
		case used > n:
			panic("it has read more than there is")
		}
		return p.Answer(nil, &req, peer).Response
	}
}

func BenchmarkUpgrade(b *testing.B) {
	text := []byte("GET / HTTP/1.1\r\nHost: edge.example\r\nConnection: Upgrade\r\nPragma: no-cache\r\nCache-Control: no-cache\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36\r\nUpgrade: websocket\r\nOrigin: https://edge.example\r\nSec-WebSocket-Version: 13\r\nAccept-Encoding: gzip, deflate, br\r\nAccept-Language: en-US,en;q=0.9\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\nSec-WebSocket-Protocol: pushmesh.v1\r\n\r\n")
	b.ReportAllocs()
	p := Policy{}
	for b.Loop() {
		req, _, err := Read(text, 0)
		if err != nil || !p.Answer(nil, &req, netip.Addr{}).Upgraded {
			b.Fatal(err)
		}
	}
}
