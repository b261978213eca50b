package upgrade

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
)

const (
	// MaxRequest is how many bytes a request may have.
	MaxRequest = 8 << 10
	// mostLines is how often a header may come whose lines are a list.
	mostLines = 8
)

// ErrMore says that a request has not come whole.
var ErrMore = errors.New("the request has not come whole")

var (
	errRequest = &refusal{http.StatusBadRequest, "this is no HTTP request"}
	errLong    = &refusal{http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf("a request has %d bytes at most, and a header %d lines", MaxRequest, mostLines)}
	errTwice   = &refusal{http.StatusBadRequest, "Host, Origin, Sec-WebSocket-Key and Sec-WebSocket-Version come once"}
)

// Request is what counts of one. It refers to what was read.
type Request struct {
	method, target             []byte
	host, origin, key, version []byte
	protocols, cookies         lines
	forwarded                  lines
	http11                     bool
	connection                 bool // its list has upgrade
	upgrade                    bool // its list has websocket
	body                       bool
}

// lines of a header.
type lines struct {
	all [mostLines][]byte
	n   int
}

// each is what stands between the commas of all lines.
func (l *lines) each() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, line := range l.all[:l.n] {
			for part := range bytes.SplitSeq(line, []byte{','}) {
				if part = bytes.Trim(part, " \t"); len(part) > 0 && !yield(part) {
					return
				}
			}
		}
	}
}

func (l *lines) joined(between string) string {
	var b strings.Builder
	for i, line := range l.all[:l.n] {
		if i > 0 {
			b.WriteString(between)
		}
		b.Write(line)
	}
	return b.String()
}

func (l *lines) add(line []byte) *refusal {
	if l.n == mostLines {
		return errLong
	}
	l.all[l.n] = line
	l.n++
	return nil
}

// Read reads the request that b begins with, and says how many bytes it is. What comes behind its
// headers is no part of it. Of b the first seen bytes were looked at before. ErrMore: the rest has
// not come yet; other errors are of the client's, and Refuse answers them.
func Read(b []byte, seen int) (r Request, n int, err error) {
	from := max(seen-len("\r\n\r"), 0)
	end := bytes.Index(b[from:], []byte("\r\n\r\n"))
	switch {
	case end < 0 && len(b) >= MaxRequest, end >= 0 && from+end+4 > MaxRequest:
		return r, 0, errLong
	case end < 0:
		return r, 0, ErrMore
	}
	n = from + end + 4
	line, rest, _ := bytes.Cut(b[:n-2], []byte("\r\n"))
	if !r.first(line) {
		return r, 0, errRequest
	}
	for len(rest) > 0 {
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		if why := r.header(line); why != nil {
			return r, 0, why
		}
	}
	return r, n, nil
}

// first takes the request line.
func (r *Request) first(line []byte) bool {
	method, rest, ok := bytes.Cut(line, []byte{' '})
	target, proto, found := bytes.Cut(rest, []byte{' '})
	r.method, r.target, r.http11 = method, target, string(proto) == "HTTP/1.1"
	return ok && found && isToken(method) && len(target) > 0 && printable(target) && (r.http11 || string(proto) == "HTTP/1.0")
}

// header takes a line of a header.
func (r *Request) header(line []byte) *refusal {
	name, value, ok := bytes.Cut(line, []byte{':'})
	value = bytes.Trim(value, " \t")
	if !ok || !isToken(name) || !printable(value) {
		return errRequest
	}
	is := func(s string) bool { return len(name) == len(s) && bytes.EqualFold(name, []byte(s)) }
	switch {
	case is("Host"):
		return once(&r.host, value)
	case is("Origin"):
		return once(&r.origin, value)
	case is("Sec-WebSocket-Key"):
		return once(&r.key, value)
	case is("Sec-WebSocket-Version"):
		return once(&r.version, value)
	case is("Connection"):
		r.connection = r.connection || has(value, "upgrade")
	case is("Upgrade"):
		r.upgrade = r.upgrade || has(value, "websocket")
	case is("Sec-WebSocket-Protocol"):
		return r.protocols.add(value)
	case is("X-Forwarded-For"):
		return r.forwarded.add(value)
	case is("Cookie"):
		return r.cookies.add(value)
	case is("Transfer-Encoding"):
		r.body = true
	case is("Content-Length"):
		r.body = r.body || string(value) != "0"
	}
	return nil
}

func once(dst *[]byte, value []byte) *refusal {
	if *dst != nil {
		return errTwice
	}
	if *dst = value; value == nil {
		*dst = []byte{} // it has come, empty
	}
	return nil
}

// has reports whether a list has a word.
func has(list []byte, word string) bool {
	for part := range bytes.SplitSeq(list, []byte{','}) {
		if bytes.EqualFold(bytes.Trim(part, " \t"), []byte(word)) {
			return true
		}
	}
	return false
}

// isToken reports whether b is what names in HTTP are made of (RFC 9110, 5.6.2).
func isToken(b []byte) bool {
	for _, c := range b {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0:
			return false
		}
	}
	return len(b) > 0
}

// printable reports whether b has no control character but tabs.
func printable(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
