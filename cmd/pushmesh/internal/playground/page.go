package playground

import (
	"embed"
	"fmt"
	"html"
	"net"
	"net/http"
	"strings"
)

// dist is what scripts/playground builds of web and code.
//
//go:embed dist
var dist embed.FS

// files of the page, by their paths.
var files = map[string]struct{ name, kind string }{
	"/":         {"index.html", "text/html; charset=utf-8"},
	"/app.js":   {"app.js", "text/javascript; charset=utf-8"},
	"/app.css":  {"app.css", "text/css; charset=utf-8"},
	"/icon.svg": {"icon.svg", "image/svg+xml"},
}

// page serves the files to browsers that ask for this host by its address.
type page struct {
	host     string
	policy   string // Content-Security-Policy
	contents map[string][]byte
}

// newPage is the page that is served at host, of the mesh with this edge and this router.
func newPage(host, edge, router string) (*page, error) {
	edge, router = reachable(edge), reachable(router)
	p := &page{
		host: host,
		// Nothing but what this page brings, and one WebSocket to one edge.
		policy: "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src ws://" + edge +
			"; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
		contents: map[string][]byte{},
	}
	fill := strings.NewReplacer("{{edge}}", html.EscapeString(edge), "{{router}}", html.EscapeString(router))
	for path, f := range files {
		b, err := dist.ReadFile("dist/" + f.name)
		if err != nil {
			return nil, fmt.Errorf("the page was not built: %w", err)
		}
		if path == "/" {
			b = []byte(fill.Replace(string(b)))
		}
		p.contents[path] = b
	}
	return p, nil
}

// reachable is an address to connect to; one that listens everywhere is on loopback, too.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// ServeHTTP answers GET and HEAD. Another host than the page's own may be a name of somebody else,
// whose pages would then be taken for this one.
func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", p.policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache")
	if _, port, err := net.SplitHostPort(p.host); err == nil && r.Host == "localhost:"+port {
		// The edge knows the page by its address.
		http.Redirect(w, r, "http://"+p.host+"/", http.StatusTemporaryRedirect)
		return
	}
	content, found := p.contents[r.URL.Path]
	switch {
	case r.Host != p.host:
		http.Error(w, "the playground is at http://"+p.host+"/", http.StatusMisdirectedRequest)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "the playground is only read: GET or HEAD", http.StatusMethodNotAllowed)
	case !found:
		http.Error(w, "there is nothing here; the playground is at http://"+p.host+"/", http.StatusNotFound)
	default:
		h.Set("Content-Type", files[r.URL.Path].kind)
		_, _ = w.Write(content) // who went away needs none
	}
}
