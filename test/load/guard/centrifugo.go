package guard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/coder/websocket"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// Fields of Centrifugo's client protocol (its definitions/client.proto).
const (
	commandID        = 1
	commandConnect   = 4
	commandSubscribe = 5
	subscribeChannel = 1
	replyError       = 2
	replyPush        = 4
)

// centrifugo is a Centrifugo that keeps nothing and lets anybody in, with clients that are in a
// channel.
type centrifugo struct {
	*local.Process
	channel string
}

// startCentrifugo starts one; nil where it could not be built, which scripts/bench has said.
func (b *bench) startCentrifugo(ctx context.Context) (*centrifugo, error) {
	program := filepath.Join(b.Tools, "centrifugo")
	if _, err := os.Stat(program); err != nil {
		return nil, nil //nolint:nilnil // see above
	}
	p, err := b.Dir.StartCentrifugo(ctx, program)
	if err != nil {
		return nil, err
	}
	return &centrifugo{p, "bench"}, nil
}

// gather opens n connections that are in the channel, by WebSocket with the protobuf protocol.
func (c *centrifugo) gather(ctx context.Context, n int) (*crowd, error) {
	clients := &crowd{conns: make([]io.Closer, n), there: make(chan struct{}, 1)}
	err := suite.Each(n, atATime, func(_, i int) (err error) {
		defer try.Catch(&err)
		conn, r, err := websocket.Dial(ctx, "ws://"+c.Addr+"/connection/websocket", &websocket.DialOptions{Subprotocols: []string{"centrifuge-protobuf"}})
		if err != nil {
			return fmt.Errorf("centrifugo: %w", err)
		}
		if r.Body != nil {
			_ = r.Body.Close()
		}
		clients.conns[i] = closer(conn.CloseNow)
		try.Do(c.enter(ctx, conn))
		clients.ended.Go(func() { c.count(ctx, conn, clients) })
		return nil
	})
	if err != nil {
		clients.close()
		return nil, err
	}
	return clients, nil
}

type closer func() error

func (c closer) Close() error { return c() }

// enter says who it is, and subscribes.
func (c *centrifugo) enter(ctx context.Context, conn *websocket.Conn) (err error) {
	defer try.Catch(&err)
	hello := protowire.AppendVarint(protowire.AppendTag(nil, commandID, protowire.VarintType), 1)
	hello = protowire.AppendBytes(protowire.AppendTag(hello, commandConnect, protowire.BytesType), nil)
	channel := protowire.AppendString(protowire.AppendTag(nil, subscribeChannel, protowire.BytesType), c.channel)
	subscribe := protowire.AppendVarint(protowire.AppendTag(nil, commandID, protowire.VarintType), 2)
	subscribe = protowire.AppendBytes(protowire.AppendTag(subscribe, commandSubscribe, protowire.BytesType), channel)
	for _, command := range [][]byte{hello, subscribe} {
		try.Do(conn.Write(ctx, websocket.MessageBinary, protowire.AppendBytes(nil, command)))
		for answered := false; !answered; {
			_, b, err := conn.Read(ctx)
			if err != nil {
				return fmt.Errorf("centrifugo: %w", err)
			}
			try.Do(replies(b, func(field protowire.Number) error {
				if field == replyError {
					return fmt.Errorf("centrifugo refuses: %q", b)
				}
				answered = answered || field == commandID
				return nil
			}))
		}
	}
	return nil
}

// replies calls f with each field of each reply in a message, and with 0 for a reply without any.
func replies(message []byte, f func(protowire.Number) error) error {
	for len(message) > 0 {
		reply, n := protowire.ConsumeBytes(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if message = message[n:]; len(reply) == 0 {
			if err := f(0); err != nil {
				return err
			}
		}
		for len(reply) > 0 {
			field, _, n := protowire.ConsumeField(reply)
			if n < 0 {
				return protowire.ParseError(n)
			}
			reply = reply[n:]
			if err := f(field); err != nil {
				return err
			}
		}
	}
	return nil
}

// count counts messages until the connection ends, and answers pings, which are empty replies.
func (c *centrifugo) count(ctx context.Context, conn *websocket.Conn, clients *crowd) {
	for {
		_, b, err := conn.Read(ctx)
		if err != nil {
			return
		}
		err = replies(b, func(field protowire.Number) error {
			switch field {
			case 0:
				return conn.Write(ctx, websocket.MessageBinary, []byte{0})
			case replyPush:
				clients.one()
			}
			return nil
		})
		if err != nil {
			return
		}
	}
}

// Publish publishes n messages in a request.
func (c *centrifugo) Publish(n int) error {
	type command struct {
		Publish struct {
			Channel string `json:"channel"`
			Base64  string `json:"b64data"`
		} `json:"publish"`
	}
	commands := make([]command, n)
	for i := range commands {
		commands[i].Publish.Channel, commands[i].Publish.Base64 = c.channel, strings.Repeat("cHVz", (webSize+2)/3)
	}
	body, err := json.Marshal(map[string]any{"commands": commands})
	if err != nil {
		return err
	}
	r, err := http.Post("http://"+c.Addr+"/api/batch", "application/json", bytes.NewReader(body)) //nolint:noctx // a loopback of our own; it ends with the process
	if err != nil {
		return fmt.Errorf("centrifugo: %w", err)
	}
	said, err := io.ReadAll(r.Body)
	if err = errors.Join(err, r.Body.Close()); err != nil {
		return fmt.Errorf("centrifugo: %w", err)
	}
	if r.StatusCode != http.StatusOK || bytes.Contains(said, []byte(`"error"`)) {
		return fmt.Errorf("centrifugo: %s: %.200s", r.Status, said)
	}
	return nil
}

// idle is its memory for each connection that is idle in the channel.
func (c *centrifugo) idle(ctx context.Context) (float64, error) {
	return growth(c.PID(), func(n int) (*crowd, error) { return c.gather(ctx, n) })
}
