package loop

import (
	"errors"
	"net/http"
	"net/netip"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/principals"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
	"github.com/pushmesh/pushmesh/services/edge/internal/websocket/upgrade"
	"github.com/pushmesh/pushmesh/services/edge/internal/websocket/wsframe"
)

// WebSocket lies between the socket, or its TLS, and the hub, as TLS does: what clients send are
// native frames in messages, and each write to a client is one message around what the hub has
// gathered for it. Nothing is encoded for it but a header, and an idle connection has no memory for
// it but two marks.

const (
	// webMost is how many bytes of frames go into a message, or one frame: what the socket does not
	// take of it is copied.
	webMost = 32 << 10
	// webBatch is how many bytes of messages the sender is given at a time, and copiedMost how many
	// of them a flush copies, about: what sockets have not taken of messages of 1 MiB would stop
	// the loop for tens of milliseconds else. Shorter ones stay below it.
	webBatch   = flushBudget * webMost
	copiedMost = 4 << 20
	// mostMessage is how long a client's message may be; its frames are bounded one by one.
	mostMessage = 1 << 30
	// webFrameUnits of a share count for each WebSocket frame, and requestUnits for a request
	// (BenchmarkUpgrade: 4 µs).
	webFrameUnits = 1
	requestUnits  = 8
	// mostPongs is how many bytes of Pongs wait for a socket: behind them a Ping is not answered,
	// as RFC 6455 allows where a later one is.
	mostPongs = 4 << 10
)

// web is what a WebSocket has that is not at rest.
type web struct {
	in     []byte // read and not cut: a request, or a frame, that has not come whole
	out    []byte // what its socket has not taken: the rest of a message, control frames, HTTP
	pongs  int    // bytes of Pongs in out, since it was empty
	text   []byte // of a text message that has not come whole
	sound  int    // bytes of that which are UTF-8
	frames wsframe.Reader
	// status of the Close that the client has sent, or that its fault is answered with; 0: none
	status uint16
	asks   bool // its request has not come whole
	plain  bool // it was answered with HTTP, and is closed
	bye    bool // Close was sent, or what takes its place
}

func (w *web) idle() bool {
	return len(w.in) == 0 && len(w.out) == 0 && len(w.text) == 0 && w.frames.Idle() && w.status == 0 && !w.asks && !w.plain && !w.bye
}

// owes reports whether something is to be sent: what is in out, or frames where they may be sent.
func (w *web) owes(frames bool) bool {
	return w != nil && len(w.out) > 0 || frames && w.takesFrames()
}

// takesFrames reports whether messages may be sent: not before the request, nor behind Close.
func (w *web) takesFrames() bool { return w == nil || !w.asks && !w.plain && !w.bye }

// left notes what the socket has not taken yet.
func (w *web) left(b []byte) {
	if w.out = b; len(b) == 0 {
		w.out, w.pongs = nil, 0
	}
}

// messages are those of WebSockets without TLS that a flush sends.
type messages struct {
	heads  []byte // their headers
	given  int    // bytes that the sender has in hand
	copied int    // bytes that their sockets did not take
}

// webStats are plain counters.
type webStats struct {
	WebSockets int64  // a gauge: connections
	Upgraded   uint64 // requests that became WebSockets
	Answered   uint64 // requests that were answered with a page
	Denied     uint64 // requests that were refused
	WebPings   uint64 // Pings of the edge's
}

// webOf is what p has of web, to be written to.
func (s *peers) webOf(p *peer) *web {
	if p.web == nil {
		s.more(p).web = s.webs.Take()
	}
	return p.web
}

// webRests gives back what p has of web, where that is at rest.
func (s *peers) webRests(p *peer) {
	if p.web != nil && p.web.idle() {
		s.webs.Give(p.web)
		p.web = nil
		s.less(p)
	}
}

// putWeb writes b behind the first n bytes of what was read and not cut. It counts as parts of
// frames do.
func (s *peers) putWeb(w *web, n int, b []byte) {
	s.kept -= cap(w.in)
	if w.in = append(w.in[:n], b...); len(w.in) == 0 {
		w.in = nil
	}
	s.kept += cap(w.in)
}

// takePlain takes what a client has sent, its TLS taken off, or with nil what is left of before.
// False where reading must not go on now.
func (l *Loop) takePlain(slot uint32, p *peer, fresh []byte) bool {
	if p.marks&spoke == 0 && len(fresh) > 0 {
		p.marks |= spoke
		if upgrade.Begins(fresh[0]) {
			p.marks |= isWeb
			l.peers.webOf(p).asks = true
		}
	}
	switch {
	case p.marks&isWeb == 0:
		return l.feed(slot, p, fresh)
	case p.web != nil && p.web.asks:
		return l.ask(slot, p, fresh)
	case p.web != nil && p.web.plain:
		return false
	}
	return l.takeMessages(slot, p, fresh)
}

// ask takes a part of the request that a connection begins with.
func (l *Loop) ask(slot uint32, p *peer, fresh []byte) bool {
	w := p.web
	seen, b := len(w.in), fresh
	if seen > 0 {
		l.peers.putWeb(w, seen, fresh)
		b = w.in
	}
	l.spend(p, 1)
	req, n, err := upgrade.Read(b, seen)
	var a upgrade.Answer
	switch {
	case errors.Is(err, upgrade.ErrMore):
		if seen == 0 {
			l.peers.putWeb(w, 0, b)
		}
		return true
	case err != nil:
		a = upgrade.Refuse(err)
	default:
		l.spend(p, requestUnits)
		a = l.cfg.Web.Answer(w.out, &req, l.client(slot, p))
	}
	w.asks = false
	w.out = a.Response // nothing was in it
	l.outside(slot, p)
	l.wantFlush(slot, p)
	if !a.Upgraded {
		l.answered(slot, p, &a)
		return false
	}
	l.stats.Upgraded++
	l.stats.WebSockets++
	if a.JSON {
		p.marks |= isText
	}
	l.hub.Upgraded(slot, principals.Brought{Token: a.Token, Cookie: a.Cookie})
	if a.Client.IsValid() && !l.forwarded(slot, p, a.Client) {
		return false
	}
	l.peers.putWeb(w, 0, b[n:])
	if len(w.in) > 0 {
		return l.takeMessages(slot, p, nil)
	}
	return true
}

// answered closes a connection that gets a page, and no WebSocket.
func (l *Loop) answered(slot uint32, p *peer, a *upgrade.Answer) {
	p.web.plain = true
	l.peers.putWeb(p.web, 0, nil)
	if a.Status < http.StatusBadRequest {
		l.stats.Answered++
		l.hub.Cut(slot, wirev1.Code_CODE_OK, "")
		return
	}
	l.stats.Denied++
	l.hub.Cut(slot, wirev1.Code_CODE_BAD_FRAME, http.StatusText(a.Status))
}

// forwarded has the door judge whom a proxy names; false where that closes the connection.
func (l *Loop) forwarded(slot uint32, p *peer, client netip.Addr) bool {
	place, why := l.door.EnterFrom(client, l.clock.at)
	if why != nil {
		l.refused(client, why)
		l.hub.Refuse(slot, why)
		return false
	}
	if int(slot) < l.places.Len() { // whom a PROXY header named is another proxy of ours
		l.door.LeaveFrom(*l.places.At(int(slot)))
	}
	l.setPlace(slot, place)
	l.peers.setClient(slot, client.As16())
	return true
}

// takeMessages cuts what was read into messages, and feeds what is in them. What was cut and not
// handled comes first.
func (l *Loop) takeMessages(slot uint32, p *peer, fresh []byte) bool {
	if fresh == nil && p.rest != nil && !l.feed(slot, p, nil) {
		return false
	}
	w := l.peers.webOf(p)
	b := fresh
	if len(w.in) > 0 {
		l.peers.putWeb(w, len(w.in), fresh)
		b = w.in
	}
	goesOn, cuts := true, true
	for cuts && goesOn && p.open() && l.remainingShare(p) > 0 {
		most := uint64(mostMessage)
		if p.marks&isText != 0 {
			most = l.mostText(slot)
		}
		e, n, fault := w.frames.Next(b, most)
		b = b[n:]
		if fault != nil {
			l.violated(slot, p, fault)
			return false
		}
		switch e.Kind {
		case wsframe.More:
			cuts = false
		case wsframe.Data:
			goesOn = l.data(slot, p, &e)
		case wsframe.Pinged:
			l.pong(slot, p, e.Payload)
		case wsframe.Closed:
			w.status = e.Status
			l.hub.Cut(slot, wirev1.Code_CODE_OK, "")
			return false
		}
		l.spend(p, webFrameUnits)
		l.chargeWeb(slot, &e, n)
	}
	if !p.open() {
		return false
	}
	l.peers.putWeb(w, 0, b)
	switch {
	case cuts && len(b) > 0:
		p.fed = true // its share is used up, or it holds
	case len(b) > 0 || !w.frames.Idle():
		l.hub.RecordBegun(slot)
	case p.rest == nil:
		l.hub.RecordWhole(slot)
	}
	l.peers.webRests(p)
	l.refuseLargePart(slot, p)
	return goesOn
}

// data feeds a part of a message.
func (l *Loop) data(slot uint32, p *peer, e *wsframe.Event) bool {
	switch isText := p.marks&isText != 0; {
	case isText && e.Op == wsframe.Text:
		return l.takeText(slot, p, e)
	case isText:
		l.violated(slot, p, &wsframe.Violation{Status: wsframe.Unsupported, Text: "messages of " + upgrade.JSON + " are text"})
		return false
	case e.Op != wsframe.Binary:
		l.violated(slot, p, &wsframe.Violation{Status: wsframe.Unsupported, Text: "messages of " + upgrade.Frames + " are binary"})
		return false
	}
	if len(e.Payload) == 0 {
		return true
	}
	return l.feed(slot, p, e.Payload)
}

// chargeWeb counts what feed does not: headers, and frames that hold nothing to be fed.
func (l *Loop) chargeWeb(slot uint32, e *wsframe.Event, n int) {
	switch {
	case e.Kind == wsframe.More:
	case e.Kind == wsframe.Data && len(e.Payload) > 0:
		l.charge(slot, 0, n-len(e.Payload))
	default:
		l.charge(slot, 1, n)
	}
}

// pong answers a Ping.
func (l *Loop) pong(slot uint32, p *peer, payload []byte) {
	w := p.web
	if w.pongs > mostPongs {
		return
	}
	before := len(w.out)
	w.out = wsframe.AppendControl(w.out, wsframe.Pong, payload)
	w.pongs += len(w.out) - before
	l.outside(slot, p)
	l.wantFlush(slot, p)
}

// violated closes a connection that has sent what RFC 6455 does not allow.
func (l *Loop) violated(slot uint32, p *peer, fault *wsframe.Violation) {
	l.peers.webOf(p).status = fault.Status
	l.forget(slot, p)
	why := wirev1.Code_CODE_BAD_FRAME
	if fault.Status == wsframe.TooLarge {
		why = wirev1.Code_CODE_FRAME_TOO_LARGE
	}
	l.hub.Cut(slot, why, fault.Text)
}

// ping asks those for a Pong that were silent for half of their time.
func (l *Loop) ping() {
	l.slots = l.hub.Silent(l.slots[:0])
	for _, slot := range l.slots {
		p := l.peers.get(slot)
		if p == nil || !p.open() || p.marks&isWeb == 0 {
			continue
		}
		l.stats.WebPings++
		w := l.peers.webOf(p)
		if w.bye || w.pongs > 0 {
			continue
		}
		w.out = wsframe.AppendControl(w.out, wsframe.Ping, nil)
		l.outside(slot, p)
		l.wantFlush(slot, p)
	}
}

// farewell is what a WebSocket is owed before its socket is shut: Close, or an HTTP response where
// its request never came whole. False where there is nothing, or it was sent.
func (l *Loop) farewell(slot uint32, p *peer) bool {
	if p.marks&isWeb == 0 || p.web != nil && (p.web.bye || p.web.plain) {
		return false
	}
	w := l.peers.webOf(p)
	w.bye = true
	why := l.hub.Why(slot)
	switch {
	case w.asks && why == wirev1.Code_CODE_HANDSHAKE_TIMEOUT:
		w.out = append(w.out, upgrade.Unavailable(http.StatusRequestTimeout, "the request has not come whole in time")...)
	case w.asks:
		w.out = append(w.out, upgrade.Unavailable(http.StatusServiceUnavailable, why.String())...)
	case w.status != 0:
		w.out = wsframe.AppendClose(w.out, w.status, "")
	default:
		w.out = wsframe.AppendClose(w.out, wsframe.StatusOf(why), why.String())
	}
	l.outside(slot, p)
	l.wantFlush(slot, p)
	return true
}

// unweb ends the WebSocket of a connection that ends.
func (l *Loop) unweb(slot uint32, p *peer) {
	if p.marks&isWeb == 0 {
		return
	}
	if p.web == nil || !p.web.asks && !p.web.plain {
		l.stats.WebSockets--
	}
	if p.web != nil {
		l.peers.putWeb(p.web, 0, nil)
		l.peers.dropText(p.web)
		l.peers.webs.Give(p.web)
		p.web = nil
		l.peers.less(p)
		l.hub.Outside(slot, 0)
	}
	p.marks &^= isWeb | isText
}

// outside tells the hub how many bytes wait for the socket that are in no queue any more.
func (l *Loop) outside(slot uint32, p *peer) {
	n := 0
	if p.secure != nil {
		n = len(p.secure.out)
	}
	if p.web != nil {
		n += len(p.web.out)
	}
	l.hub.Outside(slot, n)
}

// client is the peer's address, or that for which a proxy has said with a PROXY header that it
// connects.
func (l *Loop) client(slot uint32, p *peer) netip.Addr {
	if int(slot) < l.peers.clients.Len() {
		if client := *l.peers.clients.At(int(slot)); client != ([16]byte{}) {
			return netip.AddrFrom16(client).Unmap()
		}
	}
	return poll.Peer(int(p.fd)).Unmap()
}

// gatherWeb gives the sender what a WebSocket without TLS is owed: what its socket has not taken,
// or else a message of its frames.
func (l *Loop) gatherWeb(slot uint32, p *peer) {
	if l.copied >= copiedMost {
		l.later = append(l.later, slot)
		return
	}
	b := sending{slot: slot}
	at := len(l.bufs)
	switch w := p.web; {
	case !p.writable:
	case w != nil && len(w.out) > 0:
		b.left = w.out
		l.bufs = append(l.bufs, w.out)
	case l.hub.Status(slot).Owes:
		l.bufs, b.frames = l.gatherMessage(slot, p, l.bufs)
		l.given += b.frames
	}
	if b.owed = len(l.bufs) > at; b.owed {
		b.pieces = l.bufs[at:len(l.bufs):len(l.bufs)]
		l.sender.Add(int(p.fd), l.bufs[at:])
	}
	l.batch = append(l.batch, b)
}

// gatherMessage appends a message of what the hub has gathered for a WebSocket, and says how many
// bytes of frames it holds; 0: what there was has expired, or it may not be sent yet.
func (l *Loop) gatherMessage(slot uint32, p *peer, dst [][]byte) (pieces [][]byte, frames int) {
	if !p.web.takesFrames() {
		return dst, 0
	}
	if p.marks&isText != 0 {
		return l.gatherText(slot, dst)
	}
	at := len(dst)
	pieces = l.hub.Gather(slot, append(dst, nil), webMost)
	for _, b := range pieces[at+1:] {
		frames += len(b)
	}
	if frames == 0 {
		return dst, 0
	}
	pieces[at] = l.header(frames)
	return pieces, frames
}

// gatherText appends text messages of what the hub has gathered, or nothing where this flush has
// made enough of them.
func (l *Loop) gatherText(slot uint32, dst [][]byte) (pieces [][]byte, frames int) {
	if l.texts.tired() {
		return dst, 0
	}
	l.native = l.hub.Gather(slot, l.native[:0], webMost)
	for _, b := range l.native {
		frames += len(b)
	}
	dst = l.texts.appendFrames(dst, l.native)
	clear(l.native)
	return dst, frames
}

// messageToSeal is toSeal for a WebSocket. What of a message does not fit is left for the next
// records.
func (l *Loop) messageToSeal(slot uint32, p *peer) (all []byte, frames int) {
	if w := p.web; w != nil && len(w.out) > 0 {
		all = w.out[:min(len(w.out), sealMost)]
		w.left(w.out[len(all):])
		l.peers.webRests(p)
		return all, 0
	}
	l.pieces, frames = l.gatherMessage(slot, p, l.pieces[:0])
	all = l.sideBySide(l.pieces)
	if rest := after(l.pieces, len(all)); len(rest) > 0 {
		l.peers.webOf(p).out = rest
	}
	clear(l.pieces)
	return all, frames
}

// after is a copy of what comes behind the first n bytes of pieces; nil: nothing does.
func after(pieces [][]byte, n int) (rest []byte) {
	size := -n
	for _, piece := range pieces {
		size += len(piece)
	}
	if size <= 0 {
		return nil
	}
	rest = make([]byte, 0, size)
	for _, piece := range pieces {
		took := min(n, len(piece))
		n -= took
		rest = append(rest, piece[took:]...)
	}
	return rest
}

// header is that of a message of n bytes, in memory that is good until the flush is over.
func (l *Loop) header(n int) []byte {
	if cap(l.heads)-len(l.heads) < wsframe.MaxHeader {
		// what is in the one before is in the hands of the sender
		l.heads = make([]byte, 0, headRoom)
	}
	at := len(l.heads)
	l.heads = wsframe.AppendHeader(l.heads, wsframe.Binary, n)
	return l.heads[at:len(l.heads):len(l.heads)]
}

// headRoom is for headers of messages.
const headRoom = 16 << 10

// sentWeb notes that the socket has taken n bytes of b.
func (l *Loop) sentWeb(b *sending, p *peer, n int) {
	switch {
	case len(b.left) > 0:
		p.web.left(b.left[n:])
	default:
		l.hub.Wrote(b.slot, b.frames) // keepRests has the rest
	}
	l.outside(b.slot, p)
	l.peers.webRests(p)
}

// keepRests copies what the sockets have not taken of messages, for all of a batch before the hub
// is told of any: it makes the ends of frames for the next one in the same memory.
func (l *Loop) keepRests(results []poll.Result) {
	l.given = 0
	for i := range l.batch {
		b := &l.batch[i]
		if !b.owed {
			continue
		}
		r := results[0]
		results = results[1:]
		if len(b.pieces) == 0 || len(b.left) > 0 || r.Err != nil {
			continue
		}
		if rest := after(b.pieces, r.N); len(rest) > 0 {
			l.peers.webOf(l.peers.get(b.slot)).out = rest
			l.copied += len(rest)
		}
	}
}
