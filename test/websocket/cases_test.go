package websocket

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/procmesh"
)

// mostOctets is how long what a row sends may be to be sent byte by byte as well.
const mostOctets = 4 << 10

// writes are the ways in which a row is sent.
func (r *row) writes() map[string][][]byte {
	parts := r.parts
	if r.early > 0 {
		return map[string][][]byte{"in frames": parts[:r.early]}
	}
	all := bytes.Join(parts, nil)
	if r.chop > 0 {
		return map[string][][]byte{fmt.Sprintf("in writes of %d bytes", r.chop): slices.Collect(slices.Chunk(all, r.chop))}
	}
	ways := map[string][][]byte{"at once": {all}}
	if len(parts) > 1 {
		ways["in frames"] = parts
	}
	if len(all) <= mostOctets {
		ways["byte by byte"] = slices.Collect(slices.Chunk(all, 1))
	}
	return ways
}

// play sends a row in one way, and looks at what comes.
func (r *row) play(c *conn, writes [][]byte) error {
	var s seen
	if err := c.hello(&wirev1.Hello{}); err != nil {
		return err
	}
	if r.payload != nil {
		if err := c.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1000, Filter: topicOf(r.id)}); err != nil {
			return err
		}
		if _, err := expect[*wirev1.Subscribed](c, &s, "Subscribed"); err != nil {
			return err
		}
	}
	var sending sync.WaitGroup
	defer sending.Wait()
	sending.Go(func() {
		for _, b := range writes {
			if _, err := c.Write(b); err != nil {
				return // the edge has closed, or it is missed below
			}
		}
	})
	if r.status != 0 {
		if err := c.end(&s); err != nil {
			return err
		}
		return r.judge(&s, r.answers)
	}
	if err := r.alive(c, &s, sending.Wait); err != nil {
		return err
	}
	return r.judge(&s, r.answers+1)
}

// alive waits for what a row wants; the connection must be good for more, and be closed as asked.
func (r *row) alive(c *conn, s *seen, sent func()) error {
	got := func() int {
		n := 0
		for _, m := range s.messages {
			n += len(m.GetPayload())
		}
		return n
	}
	if err := c.until(s, "what is to come", func() bool {
		return len(s.answers) >= r.answers && len(s.pongs) >= len(r.pongs) && got() >= len(r.payload)
	}); err != nil {
		return err
	}
	sent()
	n := len(s.answers)
	if _, err := c.Write(frame(fin|c.op(), c.ask(n+1, 0))); err != nil {
		return err
	}
	if err := c.until(s, "an answer afterwards", func() bool { return len(s.answers) > n }); err != nil {
		return err
	}
	if _, err := c.Write(closeFrame(statusNormal, "done")); err != nil {
		return err
	}
	if err := c.end(s); err != nil {
		return err
	}
	if s.status != statusNormal {
		return fmt.Errorf("closed with %d afterwards", s.status)
	}
	return nil
}

// judge compares what came with what was to come.
func (r *row) judge(s *seen, answers int) error {
	var payload []byte
	for _, m := range s.messages {
		payload = append(payload, m.GetPayload()...)
	}
	for i, n := range s.answers {
		if n != uint64(i+1) {
			return fmt.Errorf("answer %d is to %d", i+1, n)
		}
	}
	switch {
	case len(s.answers) != answers:
		return fmt.Errorf("%d answers, want %d", len(s.answers), answers)
	case !slices.Equal(s.pongs, r.pongs):
		return fmt.Errorf("Pongs %.300q, want %.300q", s.pongs, r.pongs)
	case !bytes.Equal(payload, r.payload):
		return fmt.Errorf("%d bytes of payload, which are not the %d bytes that were sent", len(payload), len(r.payload))
	case r.status != 0 && s.status != r.status:
		return fmt.Errorf("closed with %d, want %d: %v", s.status, r.status, s.errors)
	case r.status == 0 && len(s.errors) > 0:
		return fmt.Errorf("errors %v", s.errors)
	}
	return nil
}

// serves reports whether an edge agrees to a subprotocol, and takes its messages.
func serves(t *testing.T, addr, subprotocol string) bool {
	t.Helper()
	raw, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = raw.Close() }()
	c, err := upgrade(raw, "Sec-WebSocket-Protocol: "+subprotocol)
	return err == nil && c.hello(&wirev1.Hello{}) == nil
}

// What Autobahn's series 1 to 7, 9 and 10 test, over both subprotocols.
func TestAutobahnsCases(t *testing.T) {
	t.Parallel()
	m := procmesh.Start(t, procmesh.Options{})
	m.Namespace(t, "websocket", &pushmeshv1.Policy{Durable: true, ClientPublish: true})
	const enough = 8 // each may have waited for its deadline
	var failed atomic.Int32
	run := func(t *testing.T, subprotocol string, rows []row) {
		for _, r := range rows {
			t.Run(strings.ReplaceAll(r.id, " ", "_"), func(t *testing.T) {
				t.Parallel()
				if failed.Load() >= enough {
					t.Fatal("not run: too many have failed")
				}
				ways := r.writes()
				for _, way := range slices.Sorted(maps.Keys(ways)) {
					c := open(t, m.EdgeAddrs[0], subprotocol)
					err := r.play(c, ways[way])
					_ = c.Close()
					if err != nil {
						failed.Add(1)
						t.Fatalf("%s, %s: %v", r.id, way, err)
					}
				}
			})
		}
	}
	if !serves(t, m.EdgeAddrs[0], native) {
		t.Fatal("the edge does not serve ", native)
	}
	t.Run(native, func(t *testing.T) { run(t, native, carrier{}.rows()) })
	text := carrier{text: true}
	rows := append(text.rows(), text.utf8()...)
	if !serves(t, m.EdgeAddrs[0], jsonText) {
		fmt.Printf("NOT RUN: %d cases of text messages, because this edge does not serve %s\n", len(rows), jsonText)
		return
	}
	t.Run(jsonText, func(t *testing.T) { run(t, jsonText, rows) })
}
