package websocket

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/coder/websocket"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/internal/identity/token/tokentest"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/test/closing"
	"github.com/pushmesh/pushmesh/test/procmesh"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// line is what a client says: that it joined, what it received, that it is sent away, or the end.
type line struct {
	Joined, Protocol string

	Seq     uint64
	Attempt int
	Size    int
	Sum     string

	GoAway wirev1.Code
	Closed int
	Reason string
	Clean  bool

	Fault string
}

// startClient runs a client, which says lines.
type startClient func(t *testing.T, url, token, topic string) (lines io.Reader)

// script is a client in another language.
func script(program string, args ...string) startClient {
	return func(t *testing.T, url, token, topic string) io.Reader {
		t.Helper()
		modules, err := nodeModules()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), wireclient.Patience)
		// #nosec G204 -- the test's own
		cmd := exec.CommandContext(ctx, program, append(args, url, token, topic)...)
		cmd.Env = append(os.Environ(), "PUSHMESH_TEST_NODE_MODULES="+modules)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cancel()
			_ = cmd.Wait() // it was ended, or has said what is wrong
			if t.Failed() {
				t.Logf("%s says\n%s", program, stderr.String())
			}
		})
		return out
	}
}

// nodeModules is where scripts/setup has put the clients of npm.
var nodeModules = sync.OnceValues(func() (string, error) {
	dir, err := exec.Command(filepath.Join("..", "..", "scripts", "tool"), "websocket-clients").Output()
	return strings.TrimSpace(string(dir)), err
})

// coder is a client in Go, github.com/coder/websocket.
func coder(t *testing.T, url, token, topic string) io.Reader {
	t.Helper()
	r, w := io.Pipe()
	go func() {
		say := json.NewEncoder(w)
		err := receive(t.Context(), say, url, token, topic)
		var closed websocket.CloseError
		if errors.As(err, &closed) {
			err = say.Encode(line{Closed: int(closed.Code), Reason: closed.Reason, Clean: true})
		}
		if err != nil {
			_ = say.Encode(line{Fault: err.Error()}) // nobody reads any more
		}
		_ = w.Close()
	}()
	return r
}

func receive(ctx context.Context, say *json.Encoder, url, token, topic string) error {
	c, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{Subprotocols: []string{native, "bearer." + token}}) //nolint:bodyclose // it is nil, or need not be closed
	if err != nil {
		return err
	}
	defer func() { _ = c.CloseNow() }()
	c.SetReadLimit(-1)
	send := func(ft wirev1.FrameType, m proto.Message) error {
		b, err := wire.Append(nil, ft, m)
		if err != nil {
			return err
		}
		return c.Write(ctx, websocket.MessageBinary, b)
	}
	if err := send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: wire.Version, ClientId: "coder", HeartbeatMs: 1000}); err != nil {
		return err
	}
	edge := ""
	for {
		_, b, err := c.Read(ctx)
		if err != nil {
			return err
		}
		var s seen
		if err := new(conn).message(&s, b); err != nil {
			return err
		}
		for _, m := range s.others {
			switch m := m.(type) {
			case *wirev1.Welcome:
				edge = m.GetEdge()
				err = send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: topic, Ack: true, Start: wirev1.Start_START_EARLIEST})
			case *wirev1.Subscribed:
				err = say.Encode(line{Joined: edge, Protocol: c.Subprotocol()})
			case *wirev1.GoAway:
				err = say.Encode(line{GoAway: m.GetCode()})
			}
			if err != nil {
				return err
			}
		}
		for _, m := range s.messages {
			sum := sha256.Sum256(m.GetPayload())
			err := say.Encode(line{Seq: m.GetSeq(), Attempt: int(m.GetAttempt()), Size: len(m.GetPayload()), Sum: hex.EncodeToString(sum[:])})
			if err == nil {
				err = send(wirev1.FrameType_FRAME_TYPE_ACK, &wirev1.Ack{Entries: []*wirev1.Ack_Entry{{Topic: m.GetTopic(), Seq: m.GetSeq()}}})
			}
			if err != nil {
				return err
			}
		}
		for _, e := range s.errors {
			return errors.New(e.String())
		}
	}
}

// linesOf are what a client says, which never waits for the test.
func linesOf(r io.Reader) <-chan string {
	lines := make(chan string, 2*messages)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(r); s.Scan(); {
			lines <- s.Text()
		}
	}()
	return lines
}

// said is a client's next line.
func said(t *testing.T, lines <-chan string) (l line) {
	t.Helper()
	text, more := <-lines
	if err := json.Unmarshal([]byte(text), &l); !more || err != nil || l.Fault != "" {
		t.Fatalf("the client says %q, more: %t, %v", text, more, err)
	}
	return l
}

// got reads that the client received the message that a payload was published in.
func got(t *testing.T, lines <-chan string, seq uint64, payload []byte) {
	t.Helper()
	sum := sha256.Sum256(payload)
	l := said(t, lines)
	for l.Attempt > 0 && l.Seq < seq { // the machine was too busy to ACK in time
		l = said(t, lines)
	}
	if l.Seq != seq || l.Attempt != 0 || l.Size != len(payload) || l.Sum != hex.EncodeToString(sum[:]) {
		t.Fatalf("got %+v, want message %d of %d bytes", l, seq, len(payload))
	}
}

// messages are what each client receives before the long one.
const messages = 2000

// Clients of others connect with a token as a subprotocol, receive durable messages in their order,
// answer the edge's Pings, and are sent away when it stops.
func TestClientsOfOthers(t *testing.T) {
	t.Parallel()
	is := tokentest.New(t)
	m := procmesh.Start(t, procmesh.Options{Edges: 5, EdgeArgs: []string{"--issuers", is.File(t), "--outbound-allow", "127.0.0.1"}})
	m.Namespace(t, "websocket", &pushmeshv1.Policy{Durable: true})
	producer, err := pushmesh.NewProducer(pushmesh.ProducerConfig{Addrs: m.RouterAddrs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closing.Close(producer) })
	for i, c := range []struct {
		name     string
		start    startClient
		protocol string
	}{
		{"ws", script("node", "clients/receive.mjs", "ws"), native},
		{"undici", script("node", "clients/receive.mjs", "undici"), native},
		{"coder", coder, native},
		{"ws-json", script("node", "clients/json.mjs", "ws"), jsonText},
		// Debian's, whatever else is installed
		{"python3-websockets", script("/usr/bin/python3", "receive.py"), native},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			clientReceives(t, m, m.Edges[i], c.start, c.protocol, is.Token(c.name, map[string]any{"pm_sub": []string{"websocket/" + c.name}}), producer, "websocket/"+c.name)
		})
	}
}

func clientReceives(t *testing.T, m *procmesh.Mesh, edge *procmesh.Process, start startClient, protocol, token string, producer *pushmesh.Producer, topic string) {
	publish := func(payloads ...[]byte) {
		t.Helper()
		for _, payload := range payloads {
			if err := producer.PublishAsync(t.Context(), pushmesh.Message{Topic: topic, Payload: payload}, func(_ pushmesh.Result, err error) {
				if err != nil {
					t.Error(err)
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
		if err := producer.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	addr := m.EdgeAddrs[0]
	for i, e := range m.Edges {
		if e == edge {
			addr = m.EdgeAddrs[i]
		}
	}
	lines := linesOf(start(t, "ws://"+addr+"/", token, topic))
	if l := said(t, lines); l.Joined != edge.Name || l.Protocol != protocol {
		t.Fatalf("joined as %+v", l)
	}
	var payloads [][]byte
	for n := range messages {
		payloads = append(payloads, []byte(strconv.Itoa(n+1)))
	}
	payloads = append(payloads, bytes.Repeat([]byte("pushmesh"), 25_000))
	publish(payloads...)
	for i, payload := range payloads {
		got(t, lines, uint64(i+1), payload)
	}

	pings := func() float64 {
		all, err := edge.Metrics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return all["pushmesh_edge_websocket_pings_total"]
	}
	// A client that answers none would be closed after two and a half heartbeats, which are five
	// Pings.
	began := pings()
	procmesh.Await(t, "the edge has asked, and asked again", func() bool { return pings() >= began+8 })
	publish([]byte("still here"))
	got(t, lines, uint64(len(payloads)+1), []byte("still here"))

	edge.Signal(syscall.SIGTERM)
	if l := said(t, lines); l.GoAway != wirev1.Code_CODE_DRAINING {
		t.Errorf("got %+v, want GoAway", l)
	}
	if l := said(t, lines); l.Closed != statusGoingAway || !l.Clean {
		t.Errorf("got %+v, want an end with %d", l, statusGoingAway)
	}
	if more, ok := <-lines; ok {
		t.Errorf("and then %s", more)
	}
	ctx, cancel := context.WithTimeout(t.Context(), wireclient.Patience)
	defer cancel()
	if code, err := edge.Wait(ctx); code != 0 || err != nil {
		t.Errorf("the edge ended with %d, %v", code, err)
	}
}
