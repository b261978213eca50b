// Package upgrade is the HTTP of the subscribers' port: it reads the request that a connection
// begins with, and says whether that becomes a WebSocket (RFC 6455, 4.2) or is answered and closed.
// It has no socket.
package upgrade

import (
	"bufio"
	"bytes"
	"crypto/sha1" //nolint:gosec // RFC 6455 has it; it secures nothing
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// MaxRequest is how many bytes a request may have.
const MaxRequest = 8 << 10

// Subprotocols of ours.
const (
	Frames = "pushmesh.v1"      // native frames in binary messages
	JSON   = "pushmesh.v1.json" // the same as JSON in text messages
)

// bearer begins a subprotocol that carries a token: browsers can't send headers.
const bearer = "bearer."

// ErrMore says that a request has not come whole.
var ErrMore = errors.New("the request has not come whole")

// Begins reports whether a connection that begins with b may speak HTTP.
func Begins(b byte) bool { return b >= 'A' && b <= 'Z' }

// Policy is what an edge takes.
type Policy struct {
	Origins *Origins
	// QueryToken takes a token from the query of the URL, too.
	QueryToken bool
	// Cookies has Cookie be known.
	Cookies bool
	// Forwards reports whether an address is of a proxy whose X-Forwarded-For is believed; nil: none
	// is.
	Forwards func(netip.Addr) bool
}

// Answer to a request.
type Answer struct {
	// Response is what is sent, and by Status of what kind.
	Response []byte
	Status   int
	// Upgraded: WebSocket follows; else the connection is closed behind Response.
	Upgraded bool
	// JSON: its messages are text.
	JSON bool
	// Token and Cookie are what the client has shown; "": nothing.
	Token, Cookie string
	// Client is who it is for whom a proxy speaks; the zero Addr: nobody else than the peer.
	Client netip.Addr
}

// Reader reads requests, one at a time.
type Reader struct {
	bytes bytes.Reader
	buf   *bufio.Reader
}

// Read reads the request that b begins with, and says how many bytes it is. What comes behind its
// headers is no part of it. Of b the first seen bytes were looked at before. ErrMore: the rest has
// not come yet; other errors are of the client's, and Refuse answers them.
func (r *Reader) Read(b []byte, seen int) (req *http.Request, n int, err error) {
	from := max(seen-len("\r\n\r"), 0)
	end := bytes.Index(b[from:], []byte("\r\n\r\n"))
	switch {
	case end < 0 && len(b) >= MaxRequest, end >= 0 && from+end+4 > MaxRequest:
		return nil, 0, &refusal{http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf("a request has %d bytes at most", MaxRequest)}
	case end < 0:
		return nil, 0, ErrMore
	}
	n = from + end + 4
	r.bytes.Reset(b[:n])
	if r.buf == nil {
		r.buf = bufio.NewReaderSize(nil, MaxRequest)
	}
	r.buf.Reset(&r.bytes)
	if req, err = http.ReadRequest(r.buf); err != nil {
		return nil, 0, &refusal{http.StatusBadRequest, "this is no HTTP request"}
	}
	return req, n, nil
}

// refusal is an HTTP status and why.
type refusal struct {
	status int
	text   string
}

func (e *refusal) Error() string { return e.text }

func refuse(status int, format string, args ...any) *refusal {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// Refuse answers what Read has found no request.
func Refuse(err error) Answer {
	var why *refusal
	if !errors.As(err, &why) {
		why = refuse(http.StatusBadRequest, "this is no HTTP request")
	}
	return page(why.status, why.text+"\n")
}

// Unavailable answers a request that did not come in time, or that the edge can't take now.
func Unavailable(status int, text string) []byte { return page(status, text+"\n").Response }

// Answer says what becomes of a request. peer is the address that it came from, which may be a
// proxy's.
func (p *Policy) Answer(r *http.Request, peer netip.Addr) Answer {
	client := p.client(r, peer)
	switch {
	case r.Method != http.MethodGet:
		a := page(http.StatusMethodNotAllowed, "GET is all that this port answers\n")
		a.Client = client
		return a
	case !wants(r.Header, "Connection", "upgrade") || !wants(r.Header, "Upgrade", "websocket"):
		a := plain(r)
		a.Client = client
		return a
	}
	a, why := p.upgrade(r)
	if why != nil {
		a = page(why.status, why.text+"\n")
	}
	a.Client = client
	return a
}

// upgrade answers a request for WebSocket.
func (p *Policy) upgrade(r *http.Request) (Answer, *refusal) {
	h := r.Header
	key, err := base64.StdEncoding.DecodeString(h.Get("Sec-Websocket-Key"))
	switch {
	case !r.ProtoAtLeast(1, 1) || r.Host == "":
		return Answer{}, refuse(http.StatusBadRequest, "WebSocket needs HTTP/1.1 and a Host")
	case h.Get("Sec-Websocket-Version") != "13":
		return Answer{}, refuse(http.StatusUpgradeRequired, "this edge speaks version 13 of WebSocket")
	case err != nil || len(key) != 16 || len(h.Values("Sec-Websocket-Key")) != 1:
		return Answer{}, refuse(http.StatusBadRequest, "Sec-WebSocket-Key is not 16 bytes in base64")
	}
	if why := p.Origins.check(h.Values("Origin"), r.Host); why != nil {
		return Answer{}, why
	}
	a := Answer{Status: http.StatusSwitchingProtocols, Upgraded: true}
	chosen := ""
	for _, name := range list(h.Values("Sec-Websocket-Protocol")) {
		switch {
		case strings.HasPrefix(name, bearer) && a.Token == "":
			a.Token = name[len(bearer):]
		case chosen == "" && (name == Frames || name == JSON):
			chosen = name
		}
	}
	if chosen == "" {
		return Answer{}, refuse(http.StatusBadRequest, "name a subprotocol: %s (frames in binary messages) or %s (JSON in text messages)", Frames, JSON)
	}
	if a.JSON = chosen == JSON; a.Token == "" {
		why := p.queryToken(r.URL, &a)
		if why != nil {
			return Answer{}, why
		}
	}
	if p.Cookies {
		a.Cookie = strings.Join(h.Values("Cookie"), "; ")
	}
	a.Response = fmt.Appendf(nil, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\nSec-WebSocket-Protocol: %s\r\n\r\n", accept(h.Get("Sec-Websocket-Key")), chosen)
	return a, nil
}

// queryToken takes a token from the query, where that is allowed.
func (p *Policy) queryToken(u *url.URL, a *Answer) *refusal {
	token := u.Query().Get("token")
	if token != "" && !p.QueryToken {
		return refuse(http.StatusBadRequest, "a token in the URL is written to logs, and this edge takes none (--websocket-query-token): send it in Hello, or as the subprotocol %sTOKEN", bearer)
	}
	a.Token = token
	return nil
}

// accept is what proves that a server has understood (RFC 6455, 4.2.2).
func accept(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // as above
	return base64.StdEncoding.EncodeToString(sum[:])
}

// wants reports whether a header's list has a word.
func wants(h http.Header, name, word string) bool {
	for _, v := range list(h.Values(name)) {
		if strings.EqualFold(v, word) {
			return true
		}
	}
	return false
}

// list is what stands between the commas of a header.
func list(values []string) (all []string) {
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			if part = strings.Trim(part, " \t"); part != "" {
				all = append(all, part)
			}
		}
	}
	return all
}

// about is what a browser shows that comes without WebSocket.
const about = `<!doctype html><meta charset="utf-8"><title>pushmesh</title>
<p>This is an edge of pushmesh: subscribers connect here, by WebSocket (` + Frames + `, ` + JSON + `) or by TCP.
`

// plain answers a request without WebSocket.
func plain(r *http.Request) Answer {
	switch r.URL.Path {
	case "/livez":
		return page(http.StatusOK, "ok\n")
	case "/":
		return response(http.StatusOK, "text/html; charset=utf-8", about)
	}
	return page(http.StatusNotFound, "there is nothing here: this port is for subscribers\n")
}

func page(status int, text string) Answer {
	return response(status, "text/plain; charset=utf-8", text)
}

// response closes the connection.
func response(status int, kind, text string) Answer {
	extra := ""
	switch status {
	case http.StatusUpgradeRequired:
		extra = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
	case http.StatusMethodNotAllowed:
		extra = "Allow: GET\r\n"
	case http.StatusServiceUnavailable:
		extra = "Retry-After: 5\r\n"
	}
	return Answer{Status: status, Response: fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n%sCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n%s",
		status, http.StatusText(status), kind, len(text), extra, text)}
}

// client is the right-most address that no proxy of ours has, where the peer is one.
func (p *Policy) client(r *http.Request, peer netip.Addr) netip.Addr {
	if p.Forwards == nil || !p.Forwards(peer) {
		return netip.Addr{}
	}
	hops := list(r.Header.Values("X-Forwarded-For"))
	found := netip.Addr{}
	for i := len(hops) - 1; i >= 0; i-- {
		addr, ok := hop(hops[i])
		if !ok {
			break // what stands before it is not to be believed
		}
		if found = addr; !p.Forwards(addr) {
			break
		}
	}
	return found
}

// hop reads an address, which some proxies write with a port.
func hop(s string) (netip.Addr, bool) {
	if at, err := netip.ParseAddrPort(s); err == nil {
		return at.Addr().Unmap().WithZone(""), true
	}
	addr, err := netip.ParseAddr(strings.Trim(s, "[]"))
	return addr.Unmap().WithZone(""), err == nil
}
