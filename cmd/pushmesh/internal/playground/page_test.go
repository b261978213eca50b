package playground

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

const host = "127.0.0.1:7484"

func testPage(t *testing.T) *page {
	t.Helper()
	p, err := newPage(host, "127.0.0.1:7400", "0.0.0.0:7401")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ask has a page answer a request.
func ask(t *testing.T, p *page, method, host, path string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, "http://"+host+path, http.NoBody)
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w
}

func TestWhoIsAnswered(t *testing.T) {
	p := testPage(t)
	for _, c := range []struct {
		method, host, path string
		status             int
	}{
		{http.MethodGet, host, "/", http.StatusOK},
		{http.MethodHead, host, "/", http.StatusOK},
		{http.MethodGet, host, "/app.js", http.StatusOK},
		{http.MethodGet, host, "/app.css", http.StatusOK},
		{http.MethodGet, host, "/icon.svg", http.StatusOK},
		{http.MethodGet, host, "/index.html", http.StatusNotFound},
		{http.MethodGet, host, "/../page.go", http.StatusNotFound},
		{http.MethodPost, host, "/", http.StatusMethodNotAllowed},
		{http.MethodOptions, host, "/app.js", http.StatusMethodNotAllowed},
		{http.MethodGet, "evil.example", "/", http.StatusMisdirectedRequest},
		{http.MethodGet, "evil.example:7484", "/", http.StatusMisdirectedRequest},
		{http.MethodGet, "127.0.0.1:7485", "/", http.StatusMisdirectedRequest},
		{http.MethodGet, "127.0.0.1", "/", http.StatusMisdirectedRequest},
		{http.MethodGet, "localhost.evil.example:7484", "/", http.StatusMisdirectedRequest},
		{http.MethodGet, "localhost:7484", "/app.js", http.StatusTemporaryRedirect},
	} {
		w := ask(t, p, c.method, c.host, c.path)
		if w.Code != c.status {
			t.Errorf("%s %s%s: %d, want %d", c.method, c.host, c.path, w.Code, c.status)
		}
		if c.status == http.StatusMethodNotAllowed && w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s is refused without what is allowed", c.method)
		}
		if c.status == http.StatusTemporaryRedirect && w.Header().Get("Location") != "http://"+host+"/" {
			t.Errorf("sent to %q", w.Header().Get("Location"))
		}
	}
}

func TestHeaders(t *testing.T) {
	p := testPage(t)
	for _, path := range []string{"/", "/app.js", "/nothing"} {
		h := ask(t, p, http.MethodGet, host, path).Header()
		for name, want := range map[string]string{
			"Content-Security-Policy":      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src ws://127.0.0.1:7400; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
			"X-Content-Type-Options":       "nosniff",
			"Referrer-Policy":              "no-referrer",
			"Cross-Origin-Opener-Policy":   "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin",
			"Cache-Control":                "no-cache",
		} {
			if got := h.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
	}
	for path, want := range map[string]string{"/": "text/html; charset=utf-8", "/app.js": "text/javascript; charset=utf-8", "/app.css": "text/css; charset=utf-8", "/icon.svg": "image/svg+xml"} {
		if got := ask(t, p, http.MethodGet, host, path).Header().Get("Content-Type"); got != want {
			t.Errorf("%s is %q", path, got)
		}
	}
}

// Every file that the page names is one of its own, and it names no other place.
func TestThePageIsWhole(t *testing.T) {
	p := testPage(t)
	html := ask(t, p, http.MethodGet, host, "/").Body.String()
	for _, part := range []string{`content="127.0.0.1:7400"`, `content="127.0.0.1:7401"`} {
		if !strings.Contains(html, part) {
			t.Errorf("the page does not say %s", part)
		}
	}
	if strings.Contains(html, "{{") {
		t.Error("something was left out of the page")
	}
	names := regexp.MustCompile(`(?:src|href)="([^"#]+)"`).FindAllStringSubmatch(html, -1)
	if len(names) < 4 {
		t.Errorf("the page names %v", names)
	}
	for _, name := range names {
		if w := ask(t, p, http.MethodGet, host, "/"+strings.TrimPrefix(name[1], "/")); w.Code != http.StatusOK || w.Body.Len() == 0 {
			t.Errorf("%s: %d with %d bytes", name[1], w.Code, w.Body.Len())
		}
	}
	for path, content := range p.contents {
		for _, place := range regexp.MustCompile(`https?://[^"'\x60\s<>)]+`).FindAllString(string(content), -1) {
			if place != "http://www.w3.org/2000/svg" {
				t.Errorf("%s names %s", path, place)
			}
		}
	}
	// The policy would forbid them, but only in the browser.
	if inline := regexp.MustCompile(`<script[^>]*>[^<]|<style|\sstyle=|\son[a-z]+=`).FindString(html); inline != "" {
		t.Errorf("the page has something inline: %q", inline)
	}
}

func TestThePageIsForThisMachine(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:0", ":0", "192.0.2.1:0", "localhost:0", "nowhere"} {
		if p, err := Listen(addr); err == nil {
			_ = p.Close()
			t.Errorf("it listens at %s", addr)
		}
	}
	first, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Close() }()
	if _, err := Listen(first.Addr()); err == nil || !strings.Contains(err.Error(), first.Addr()) {
		t.Errorf("a second one at the same address: %v", err)
	}
}

func TestReachable(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1:7400": "127.0.0.1:7400", "0.0.0.0:7400": "127.0.0.1:7400", "[::]:7400": "127.0.0.1:7400", ":7400": "127.0.0.1:7400",
		"[::1]:7400": "[::1]:7400", "192.0.2.7:1": "192.0.2.7:1", "edge.example:7400": "edge.example:7400", "no port": "no port",
	} {
		if got := reachable(addr); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
}
