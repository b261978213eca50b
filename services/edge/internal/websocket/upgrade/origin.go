package upgrade

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Origins are the pages that may connect. The zero value, and nil, is those of the same host. A
// client that names no origin is no browser, and is let in.
type Origins struct {
	any      bool
	sameHost bool // besides patterns
	patterns []pattern
}

// SameHost in a list stands for pages of the host that the request names.
const SameHost = "same-host"

// pattern is a scheme and a host with its port; a host that begins with a dot stands for all below
// it.
type pattern struct{ scheme, host string }

var errOrigin = errors.New(`an origin is scheme://host or scheme://host:port, such as https://app.example.com, https://*.example.com or capacitor://localhost; * is all, and same-host the host that the request names`)

// ParseOrigins reads a list of origins; "*" is any, and "*." at the beginning of a host all names
// below it. An empty list is that of SameHost alone.
func ParseOrigins(all []string) (*Origins, error) {
	o := &Origins{sameHost: len(all) == 0}
	for _, s := range all {
		if s == "*" {
			o.any = true
			continue
		}
		if s == SameHost {
			o.sameHost = true
			continue
		}
		u, err := url.Parse(s)
		if err != nil || u.Scheme == "" || u.Host == "" || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			return nil, fmt.Errorf("%q: %w", s, errOrigin)
		}
		p := pattern{strings.ToLower(u.Scheme), host(u.Scheme, u.Host)}
		if strings.HasPrefix(p.host, "*.") {
			p.host = p.host[1:]
		}
		if strings.Contains(p.host, "*") {
			return nil, fmt.Errorf("%q: %w", s, errOrigin)
		}
		o.patterns = append(o.patterns, p)
	}
	return o, nil
}

// Listed reports whether origins are named one by one.
func (o *Origins) Listed() bool { return o != nil && !o.any && !o.sameHost }

// host in lower case, without the port that its scheme has anyway.
func host(scheme, s string) string {
	s = strings.ToLower(s)
	switch strings.ToLower(scheme) {
	case "http", "ws":
		s = strings.TrimSuffix(s, ":80")
	case "https", "wss":
		s = strings.TrimSuffix(s, ":443")
	}
	return strings.TrimSuffix(s, ":")
}

// check refuses an origin that is not allowed.
func (o *Origins) check(r *Request) *refusal {
	if r.origin == nil {
		return nil
	}
	u, err := url.Parse(string(r.origin))
	switch {
	case err != nil || u.Host == "":
		return refuse(http.StatusForbidden, "the page has no origin that could be checked")
	case o != nil && o.any:
		return nil
	}
	is := pattern{strings.ToLower(u.Scheme), host(u.Scheme, u.Host)}
	if (o == nil || o.sameHost) && is.host == host(is.scheme, string(r.host)) {
		return nil
	}
	if o == nil || len(o.patterns) == 0 {
		return refuse(http.StatusForbidden, "the page's origin is not this host: list it in --websocket-origins")
	}
	for _, p := range o.patterns {
		if p.scheme == is.scheme && (p.host == is.host || strings.HasPrefix(p.host, ".") && strings.HasSuffix(is.host, p.host)) {
			return nil
		}
	}
	return refuse(http.StatusForbidden, "the page's origin is not in --websocket-origins")
}
