package play

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// span is when something is to come, counted from the step before.
type span struct{ from, to time.Duration }

func (sp span) check(d time.Duration) error {
	if d = max(d, 0); d < sp.from { // what came before the step has come at once
		return fmt.Errorf("it came after %v, want %v at the least", d.Round(time.Millisecond), sp.from)
	}
	if d > sp.to {
		return fmt.Errorf("it came after %v, want %v at the most", d.Round(time.Millisecond), sp.to)
	}
	return nil
}

// check compares when something came with when it was to. The next step counts from then.
func (s *stage) check(t tail, at time.Time) error {
	err := t.within.check(at.Sub(s.last))
	s.came = at
	return err
}

// pass lets time pass, as long as nothing is found.
func (s *stage) pass(d time.Duration, find func() error) error {
	err := s.board.quiet(d, find)
	s.came = time.Now()
	return err
}

// tail is what stands behind the object of a step: "within A..B", "as NAME".
type tail struct {
	within span
	as     string
}

func parseTail(rest string) (tail, error) {
	t := tail{within: span{0, patience}}
	for words := strings.Fields(rest); len(words) > 0; words = words[2:] {
		if len(words) < 2 {
			return t, fmt.Errorf("what is %q", rest)
		}
		switch words[0] {
		case "as":
			t.as = words[1]
		case "within":
			from, to, ok := strings.Cut(words[1], "..")
			var err, err2 error
			if t.within.from, err = time.ParseDuration(from); err != nil || !ok {
				return t, fmt.Errorf("%q is no A..B", words[1])
			}
			if t.within.to, err2 = time.ParseDuration(to); err2 != nil {
				return t, fmt.Errorf("%q is no A..B", words[1])
			}
		default:
			return t, fmt.Errorf("what is %q", rest)
		}
	}
	return t, nil
}

// parse makes a step of a line.
func (sc *Scene) parse(line string) (func(*stage) error, error) {
	before, m, after, err := object(line)
	if err != nil {
		return nil, err
	}
	words := strings.Fields(before)
	if during, ok := strings.CutPrefix(before, "wait "); ok {
		d, err := time.ParseDuration(during)
		return func(s *stage) error { return s.pass(d, func() error { return nil }) }, err
	}
	if len(words) < 2 {
		return nil, errors.New("no such step")
	}
	if words[0] == "client" {
		return parseClient(words[1:], m, after)
	}
	return parseEdge(words[0], words[1], words[2:], m, after)
}

func parseClient(words []string, m map[string]any, after string) (func(*stage) error, error) {
	switch {
	case words[0] != "tells":
		return func(s *stage) error { return s.do(strings.Join(words, " "), m) }, nil
	case len(words) == 4 && words[1] == "nothing" && words[2] == "for":
		d, err := time.ParseDuration(words[3])
		return func(s *stage) error { return s.pass(d, s.untold) }, err
	case len(words) < 2:
		return nil, errors.New("it tells what?")
	}
	kind, rest := splitTail(words[1:], after)
	t, err := parseTail(rest)
	return func(s *stage) error { return s.tells(kind, m, t) }, err
}

// splitTail separates "connect failed within 0s..1s" where there is no object between.
func splitTail(words []string, after string) (kind, rest string) {
	for i, w := range words {
		if w == "within" || w == "as" {
			return strings.Join(words[:i], " "), strings.Join(words[i:], " ")
		}
	}
	return strings.Join(words, " "), after
}

func (s *stage) do(what string, m map[string]any) error {
	m, err := s.filled(m)
	if err != nil {
		return err
	}
	m["do"] = what
	if what == "connect" {
		defaults := map[string]any{"transport": s.transport, "addresses": s.addresses(), "backoff_ms": []int{20, 200}}
		for k, v := range defaults {
			if _, said := m[k]; !said {
				m[k] = v
			}
		}
	}
	return s.driver.do(m)
}

// tells waits for the next line of a kind, and name where one is given.
func (s *stage) tells(kind string, m map[string]any, t tail) error {
	want, err := s.filled(m)
	if err != nil {
		return err
	}
	var got *line
	err = s.board.await(t.within.to+time.Second, func() (bool, error) {
		for _, l := range s.driver.lines {
			if l.taken || l.told() != kind || want["name"] != nil && text(want["name"]) != text(l.m["name"]) {
				continue
			}
			got, l.taken = l, true
			return true, match("", want, l.m)
		}
		return false, nil
	})
	if errors.Is(err, errLate) {
		return fmt.Errorf("%w: %s", err, s.linesLeft())
	}
	if err != nil {
		return err
	}
	if t.as != "" {
		s.kept[t.as] = got.m
	}
	return s.check(t, got.at)
}

func (s *stage) linesLeft() string {
	var all []string
	s.board.post(func() {
		for _, l := range s.driver.lines {
			if !l.taken && l.told() != "log" && l.told() != "ready" {
				all = append(all, show(l.m))
			}
		}
	})
	return unseen(all)
}

func parseEdge(name, verb string, words []string, m map[string]any, after string) (func(*stage) error, error) {
	what, rest := splitTail(words, after)
	switch verb {
	case "accepts":
		if len(words) == 3 && words[0] == "nothing" && words[1] == "for" {
			d, err := time.ParseDuration(words[2])
			return func(s *stage) error { return s.pass(d, s.waiting) }, err
		}
		t, err := parseTail(rest)
		return func(s *stage) error { return s.accepts(name, m, t) }, err
	case "gets":
		return parseGets(what, rest, words, m)
	case "has": // no ack of TOPIC 4
		if len(words) != 5 {
			return nil, errors.New("it has what?")
		}
		return func(s *stage) error { return s.hasNoAck(words[3], words[4]) }, nil
	case "sends":
		return parseSends(what, words, m)
	case "dribbles": // FRAME {…} 5 bytes every 20ms
		return parseDribbles(what, after, m)
	case "sees":
		t, err := parseTail(rest)
		return func(s *stage) error { return s.seesEnd(t) }, err
	case "is": // silent, or not
		silent := what == "silent"
		return onConn(func(c *conn) error { c.board.post(func() { c.silent = silent }); return nil }), nil
	case "cuts":
		return onConn(func(c *conn) error { c.end(0); return nil }), nil
	case "closes":
		status, err := strconv.Atoi(what)
		return onConn(func(c *conn) error { c.end(status); return nil }), err
	case "refuses":
		return func(s *stage) error { return s.onEdge(name, func(e *edge) error { e.refuse(); return nil }) }, nil
	case "listens":
		return func(s *stage) error { return s.onEdge(name, (*edge).listen) }, nil
	}
	return nil, errors.New("no such step")
}

func onConn(f func(*conn) error) func(*stage) error {
	return func(s *stage) error {
		if s.conn == nil {
			return errors.New("no connection was accepted")
		}
		return f(s.conn)
	}
}

func (s *stage) onEdge(name string, f func(*edge) error) error {
	e := s.edge(name)
	if e == nil {
		return fmt.Errorf("there is no edge %q", name)
	}
	return f(e)
}

// waiting finds a connection that was not accepted.
func (s *stage) waiting() error {
	for _, c := range s.conns {
		if !c.taken {
			return fmt.Errorf("a connection came to %s", c.edge.name)
		}
	}
	return nil
}

func (s *stage) accepts(name string, m map[string]any, t tail) error {
	want, err := s.filled(m)
	if err != nil {
		return err
	}
	fits := func(c *conn) bool {
		switch {
		case name == "other":
			return s.conn == nil || c.edge != s.conn.edge
		case s.edge(name) != nil:
			return c.edge.name == name
		}
		return name == "edge"
	}
	var c *conn
	err = s.board.await(t.within.to+time.Second, func() (bool, error) {
		for _, one := range s.conns {
			if !one.taken && fits(one) {
				c, one.taken = one, true
				return true, nil
			}
		}
		return false, nil
	})
	if errors.Is(err, errLate) {
		return fmt.Errorf("%w: %s", err, s.linesLeft())
	}
	if err != nil {
		return err
	}
	s.conn = c
	if err := s.check(t, c.at); err != nil {
		return err
	}
	f, err := s.takeFrame(c, wirev1.FrameType_FRAME_TYPE_HELLO, want, patience)
	if err != nil {
		return err
	}
	s.kept["hello"] = f.m
	if t.as != "" {
		s.kept[t.as] = f.m
	}
	return nil
}

// takeFrame waits for a frame that matches, and takes it.
func (s *stage) takeFrame(c *conn, ft wirev1.FrameType, want map[string]any, within time.Duration) (got *frame, err error) {
	differs := errLate
	err = s.board.await(within, func() (bool, error) {
		for _, f := range c.frames {
			if f.taken || f.t != ft {
				continue
			}
			if err := match("", want, f.m); err != nil {
				differs = err
				continue
			}
			got, f.taken = f, true
			return true, nil
		}
		if c.ended {
			return false, errors.New("the client has ended the connection before")
		}
		return false, nil
	})
	if errors.Is(err, errLate) {
		return nil, differs
	}
	return got, err
}

func parseGets(what, rest string, words []string, m map[string]any) (func(*stage) error, error) {
	if words[0] == "nothing" && len(words) == 3 {
		d, err := time.ParseDuration(words[2])
		return func(s *stage) error {
			if s.conn == nil {
				return errNoConn(s)
			}
			return s.pass(d, func() error { return s.conn.unread("") })
		}, err
	}
	if words[0] == "acks" && len(words) == 3 {
		return func(s *stage) error { return s.getsAcks(words[1], words[2]) }, nil
	}
	ft, err := frameType(what)
	if err != nil {
		return nil, err
	}
	t, err := parseTail(rest)
	return func(s *stage) error {
		want, err := s.filled(m)
		if err != nil || s.conn == nil {
			return errors.Join(err, errNoConn(s))
		}
		f, err := s.takeFrame(s.conn, ft, want, t.within.to+time.Second)
		if err != nil {
			return err
		}
		if t.as != "" {
			s.kept[t.as] = f.m
		}
		return s.check(t, f.at)
	}, err
}

func errNoConn(s *stage) error {
	if s.conn == nil {
		return errors.New("no connection was accepted")
	}
	return nil
}

func (s *stage) getsAcks(topic, seqs string) error {
	first, last, some := strings.Cut(seqs, "..")
	if !some {
		last = first
	}
	from, err := strconv.ParseUint(first, 10, 64)
	to, err2 := strconv.ParseUint(last, 10, 64)
	if err != nil || err2 != nil || s.conn == nil {
		return errors.Join(err, err2, errNoConn(s))
	}
	var missing []string
	err = s.board.await(patience, func() (bool, error) {
		missing = nil
		for seq := from; seq <= to; seq++ {
			if !s.conn.acked(topic, seq) {
				missing = append(missing, strconv.FormatUint(seq, 10))
			}
		}
		if len(missing) > 0 && s.conn.ended {
			return false, errors.New("the connection has ended, and there is no ACK of " + strings.Join(missing, ", "))
		}
		return len(missing) == 0, nil
	})
	if errors.Is(err, errLate) {
		return fmt.Errorf("there is no ACK of %s", strings.Join(missing, ", "))
	}
	return err
}

// acked reports whether all that was sent of a seq is ACKed. Called with board.mu held.
func (c *conn) acked(topic string, seq uint64) bool {
	some := false
	for _, m := range c.sent {
		if m.topic == topic && m.seq == seq {
			some = true
			if !m.acked {
				return false
			}
		}
	}
	return some
}

func (s *stage) hasNoAck(topic, seq string) error {
	n, err := strconv.ParseUint(seq, 10, 64)
	if err != nil || s.conn == nil {
		return errors.Join(err, errNoConn(s))
	}
	s.board.post(func() {
		if s.conn.acked(topic, n) {
			err = errors.New("it is ACKed")
		}
	})
	return err
}

func parseSends(what string, words []string, m map[string]any) (func(*stage) error, error) {
	switch words[0] {
	case "bytes":
		b, err := hex.DecodeString(strings.Join(words[1:], ""))
		return onConn(func(c *conn) error { return c.sendBytes(b) }), err
	case "text":
		said := []byte(strings.Join(words[1:], " "))
		return onConn(func(c *conn) error { return c.sendText(said) }), nil
	}
	ft, err := frameType(what)
	return onFrame(ft, m, (*conn).sendFrame), err
}

func onFrame(ft wirev1.FrameType, m map[string]any, send func(*conn, wirev1.FrameType, map[string]any) error) func(*stage) error {
	return func(s *stage) error {
		said, err := s.filled(m)
		if err != nil || s.conn == nil {
			return errors.Join(err, errNoConn(s))
		}
		if ft == wirev1.FrameType_FRAME_TYPE_WELCOME {
			said = s.welcome(said)
		}
		return send(s.conn, ft, said)
	}
}

// welcome fills in what a scene does not say.
func (s *stage) welcome(said map[string]any) map[string]any {
	m := map[string]any{
		"connection_id": 1, "edge": s.conn.edge.name, "heartbeat_ms": 30000, "max_frame": 1 << 20, "version": 1, "publish_window": 64,
		"client_id": s.kept["hello"]["client_id"],
		"features": []any{
			"ack", "nack", "wildcard", "positions", "session", "overflow", "progress", "publish", "group", "where", "rank", "claim", "ping", "last", "presence",
		},
	}
	maps.Copy(m, said)
	return m
}

func (c *conn) sendFrame(ft wirev1.FrameType, said map[string]any) error {
	m, err := encode(ft, said)
	if err != nil {
		return err
	}
	c.board.post(func() {
		c.edge.stage.note(">", ft, said)
		if msg, ok := m.(*wirev1.Message); ok {
			c.sent = append(c.sent, &sentMessage{topic: msg.GetTopic(), seq: msg.GetSeq()})
		}
	})
	return c.send(ft, m)
}

func (c *conn) sendText(said []byte) error {
	c.write.Lock()
	web := c.web
	c.write.Unlock()
	if web == nil {
		return errors.New("a text message needs a WebSocket")
	}
	ctx, cancel := timeout()
	defer cancel()
	return web.Write(ctx, websocket.MessageText, said)
}

func parseDribbles(what, after string, m map[string]any) (func(*stage) error, error) {
	var n int
	var every string
	if _, err := fmt.Sscanf(after, "%d bytes every %s", &n, &every); err != nil {
		return nil, err
	}
	pause, err := time.ParseDuration(every)
	if err != nil {
		return nil, err
	}
	ft, err := frameType(what)
	return onFrame(ft, m, func(c *conn, ft wirev1.FrameType, said map[string]any) error {
		c.raw.pause.Store(int64(pause))
		c.raw.pieces.Store(int64(n))
		defer c.raw.pieces.Store(0)
		return c.sendFrame(ft, said)
	}), err
}

func (s *stage) seesEnd(t tail) error {
	if s.conn == nil {
		return errNoConn(s)
	}
	var at time.Time
	err := s.board.await(t.within.to+time.Second, func() (bool, error) { at = s.conn.endedAt; return s.conn.ended, nil })
	if err != nil {
		return fmt.Errorf("the client has not ended the connection: %w", err)
	}
	return s.check(t, at)
}
