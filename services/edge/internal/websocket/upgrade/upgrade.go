// Package upgrade is the HTTP of the subscribers' port: it reads the request that a connection
// begins with, and says whether that becomes a WebSocket (RFC 6455, 4.2) or is answered and closed.
// It has no socket.
package upgrade

import (
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Subprotocols of ours.
const (
	Frames = "pushmesh.v1"      // native frames in binary messages
	JSON   = "pushmesh.v1.json" // the same as JSON in text messages
)

// bearer begins a subprotocol that carries a token: browsers can't send headers.
const bearer = "bearer."

// Begins reports whether a connection that begins with b may speak HTTP. P is left to the PROXY
// protocol: POST and PUT are none of ours.
func Begins(b byte) bool { return b >= 'A' && b <= 'Z' && b != 'P' }

// Policy is what an edge takes.
type Policy struct {
	Origins *Origins
	// QueryToken takes a token from the query of the URL, too.
	QueryToken bool
	// Cookies has Cookie be known.
	Cookies bool
	// Forwards reports whether an address is of a proxy whose X-Forwarded-For is believed; nil:
	// none is.
	Forwards func(netip.Addr) bool
}

// Answer to a request.
type Answer struct {
	// Response is what is sent, and Status of what kind.
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
		why = errRequest
	}
	return page(why.status, why.text+"\n")
}

// Unavailable answers a request that did not come in time, or that the edge can't take now.
func Unavailable(status int, text string) []byte { return page(status, text+"\n").Response }

// Answer says what becomes of a request. peer is the address that it came from, which may be a
// proxy's. Response is appended to dst.
func (p *Policy) Answer(dst []byte, r *Request, peer netip.Addr) (a Answer) {
	switch {
	case string(r.method) != http.MethodGet:
		a = page(http.StatusMethodNotAllowed, "GET is all that this port answers\n")
	case !r.connection || !r.upgrade:
		a = plain(r)
	default:
		var why *refusal
		if a, why = p.upgrade(dst, r); why != nil {
			a = page(why.status, why.text+"\n")
		}
	}
	if !a.Upgraded {
		a.Response = append(dst, a.Response...)
	}
	a.Client = p.client(r, peer)
	return a
}

// upgrade answers a request for WebSocket.
func (p *Policy) upgrade(dst []byte, r *Request) (Answer, *refusal) {
	switch {
	case !r.http11 || len(r.host) == 0:
		return Answer{}, refuse(http.StatusBadRequest, "WebSocket needs HTTP/1.1 and a Host")
	case string(r.version) != "13":
		return Answer{}, refuse(http.StatusUpgradeRequired, "this edge speaks version 13 of WebSocket")
	case !validKey(r.key):
		return Answer{}, refuse(http.StatusBadRequest, "Sec-WebSocket-Key is not 16 bytes in base64")
	case r.body:
		return Answer{}, refuse(http.StatusBadRequest, "a request for WebSocket has no body")
	}
	if why := p.Origins.check(r); why != nil {
		return Answer{}, why
	}
	a := Answer{Status: http.StatusSwitchingProtocols, Upgraded: true}
	chosen := ""
	for name := range r.protocols.each() {
		switch {
		case bytes.HasPrefix(name, []byte(bearer)) && a.Token == "":
			a.Token = string(name[len(bearer):])
		case chosen == "" && string(name) == Frames:
			chosen = Frames
		case chosen == "" && string(name) == JSON:
			chosen = JSON
		}
	}
	if chosen == "" {
		return Answer{}, refuse(http.StatusBadRequest, "name a subprotocol: %s (frames in binary messages) or %s (JSON in text messages)", Frames, JSON)
	}
	if a.JSON = chosen == JSON; a.Token == "" {
		if why := p.queryToken(r.target, &a); why != nil {
			return Answer{}, why
		}
	}
	if p.Cookies {
		a.Cookie = r.cookies.joined("; ")
	}
	dst = slices.Grow(dst, upgradedRoom)
	dst = append(dst, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "...)
	dst = appendAccept(dst, r.key)
	dst = append(dst, "\r\nSec-WebSocket-Protocol: "...)
	a.Response = append(append(dst, chosen...), "\r\n\r\n"...)
	return a, nil
}

// upgradedRoom is as long as the answer to a request that becomes a WebSocket can be.
const upgradedRoom = 176

// queryToken takes a token from the query, where that is allowed.
func (p *Policy) queryToken(target []byte, a *Answer) *refusal {
	_, query, _ := bytes.Cut(target, []byte{'?'})
	if len(query) == 0 {
		return nil
	}
	values, _ := url.ParseQuery(string(query)) // of one with a fault it gives the rest
	if a.Token = values.Get("token"); a.Token != "" && !p.QueryToken {
		return refuse(http.StatusBadRequest, "a token in the URL is written to logs, and this edge takes none (--websocket-query-token): send it in Hello, or as the subprotocol %sTOKEN", bearer)
	}
	return nil
}

// lengths of a key: 16 bytes, and in base64.
const (
	keyBytes = 16
	keyText  = 24
)

func validKey(key []byte) bool {
	var raw [keyText]byte
	if len(key) != keyText {
		return false
	}
	n, err := base64.StdEncoding.Decode(raw[:], key)
	return err == nil && n == keyBytes
}

// appendAccept appends what proves that a server has understood (RFC 6455, 4.2.2).
func appendAccept(dst, key []byte) []byte {
	const magic = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
	var text [keyText + len(magic)]byte
	copy(text[copy(text[:], key):], magic)
	sum := sha1.Sum(text[:]) //nolint:gosec // RFC 6455 has it; it secures nothing
	return base64.StdEncoding.AppendEncode(dst, sum[:])
}

// about is what a browser shows that comes without WebSocket.
const about = `<!doctype html><meta charset="utf-8"><title>pushmesh</title>
<p>This is an edge of pushmesh: subscribers connect here, by WebSocket (` + Frames + `, ` + JSON + `) or by TCP.
`

// plain answers a request without WebSocket.
func plain(r *Request) Answer {
	path, _, _ := bytes.Cut(r.target, []byte{'?'})
	switch string(path) {
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
func (p *Policy) client(r *Request, peer netip.Addr) netip.Addr {
	if p.Forwards == nil || !p.Forwards(peer) {
		return netip.Addr{}
	}
	var hops [][]byte
	for one := range r.forwarded.each() {
		hops = append(hops, one)
	}
	found := netip.Addr{}
	for i := len(hops) - 1; i >= 0; i-- {
		addr, ok := hop(string(hops[i]))
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
