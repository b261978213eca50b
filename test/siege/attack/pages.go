package attack

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/webconn"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// Subprotocols, and what begins a frame of WebSocket.
const (
	nativeWeb = webconn.Subprotocol
	jsonWeb   = "pushmesh.v1.json"

	continuation = 0x00
	webText      = 0x81
	webBinary    = 0x82
	webPing      = 0x89
	begun        = 0x01 // text that goes on
)

// pages are what a hostile page does in many browsers, or somebody who claims to be one.
func pages() []Attack {
	return []Attack{{
		Name: "upgrades", What: "64 connections at a time that become WebSockets and leave, every fourth one with a bad request", Metric: "pushmesh_edge_http_upgrades_total",
		Run: upgrades,
	}, {
		Name: "slow-headers", What: "2,000 connections that send a request a byte at a time", Metric: "pushmesh_edge_closes_total",
		Run: slowHeaders,
	}, {
		Name: "crumbs", What: "8 WebSockets whose frames hold a byte each", Metric: "pushmesh_edge_reads_deferred_total",
		Run: webFlood(nativeWeb, func(int) []byte {
			ping := native(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 7})
			var out []byte
			for range 500 {
				for _, b := range ping {
					out = webconn.AppendFrame(out, webBinary, []byte{b})
				}
			}
			return out
		}),
	}, {
		Name: "web-largest", What: "8 WebSockets that send frames of 1 MiB, or text of 250 KiB that is slow to read", Metric: "pushmesh_edge_reads_deferred_total",
		Run: func(ctx context.Context, t *Target, c *Codes) error {
			slow := []byte(`{"publish":{"topic":"` + Clients + `/largest/web","payload":[1` + strings.Repeat(`,{"k":-2.5e-7,"":[]},"\n"`, 10_000) + `]}}`)
			text, large := webconn.AppendFrame(nil, webText, slow), webconn.AppendFrame(nil, webBinary, native(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Topic: Clients + "/largest/web", Payload: make([]byte, 1<<20-1024)}))
			return many(ctx, 8, c, func(ctx context.Context, who int) error {
				if who%2 == 0 {
					return t.flood(ctx, c, jsonWeb, text)
				}
				return t.flood(ctx, c, nativeWeb, large)
			})
		},
	}, {
		Name: "web-pings", What: "8 WebSockets that send Pings as fast as they are read", Metric: "pushmesh_edge_reads_deferred_total",
		Run: webFlood(nativeWeb, func(int) []byte { return bytes.Repeat(webconn.AppendFrame(nil, webPing, make([]byte, 125)), 500) }),
	}, {
		Name: "fragments", What: "8 WebSockets whose message never ends, in fragments with nothing in them", Metric: "pushmesh_edge_reads_deferred_total",
		Run: webFlood(jsonWeb, func(turn int) []byte {
			var out []byte
			if turn == 0 {
				out = webconn.AppendFrame(out, begun, []byte(`{"hello"`))
			}
			return append(out, bytes.Repeat(webconn.AppendFrame(nil, continuation, nil), 5000)...)
		}),
	}}
}

func native(ft wirev1.FrameType, m proto.Message) []byte {
	b, err := wire.Append(nil, ft, m)
	if err != nil {
		panic(err) // frames are made here
	}
	return b
}

// upgraded connects, and asks for a WebSocket. status is the first line of the answer, or of an
// Error frame.
func (t *Target) upgraded(ctx context.Context, protocol string) (x net.Conn, status string, err error) {
	if x, err = t.raw(ctx); err != nil {
		return nil, "", err
	}
	_ = x.SetDeadline(time.Now().Add(10 * time.Second))
	_, err = io.WriteString(x, webconn.Request("edge", protocol))
	var answer [1024]byte
	n := 0
	if err == nil {
		n, err = x.Read(answer[:])
	}
	if err != nil {
		_ = x.Close()
		return nil, "", err
	}
	status, _, _ = strings.Cut(string(answer[:n]), "\r\n")
	if !strings.HasPrefix(status, "HTTP/1.1 ") {
		status = "no HTTP"
	}
	return x, status, nil
}

func upgrades(ctx context.Context, t *Target, c *Codes) error {
	return many(ctx, 64, c, func(ctx context.Context, who int) error {
		protocol := []string{nativeWeb, jsonWeb, nativeWeb, "mqtt"}[who%4]
		x, status, err := t.upgraded(ctx, protocol)
		if err != nil {
			return err
		}
		c.Note(status)
		return x.Close()
	})
}

func slowHeaders(ctx context.Context, t *Target, c *Codes) error {
	return many(ctx, t.of(2000), c, func(ctx context.Context, _ int) error {
		x, err := t.raw(ctx)
		if err != nil {
			return err
		}
		defer context.AfterFunc(ctx, func() { _ = x.Close() })()
		defer func() { _ = x.Close() }()
		go func() {
			for _, b := range []byte(webconn.Request("edge", nativeWeb)) {
				if _, err := x.Write([]byte{b}); err != nil {
					return
				}
				pause(ctx, 500*time.Millisecond)
			}
		}()
		answer, err := io.ReadAll(io.LimitReader(x, 4096))
		if status, _, ok := strings.Cut(string(answer), "\r\n"); ok {
			c.Note(status)
		}
		return err
	})
}

// webFlood has 8 WebSockets send what next makes, turn by turn.
func webFlood(protocol string, next func(turn int) []byte) func(ctx context.Context, t *Target, c *Codes) error {
	return func(ctx context.Context, t *Target, c *Codes) error {
		first, more := next(0), next(1)
		return many(ctx, 8, c, func(ctx context.Context, _ int) error { return t.flood(ctx, c, protocol, first, more) })
	}
}

// flood sends Hello and the first writes, and the last of them again and again.
func (t *Target) flood(ctx context.Context, c *Codes, protocol string, writes ...[]byte) error {
	x, status, err := t.upgraded(ctx, protocol)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = x.Close() })()
	defer func() { _ = x.Close() }()
	if c.Note(status); !strings.HasPrefix(status, "HTTP/1.1 101") {
		return fmt.Errorf("the edge answers %q", status)
	}
	_ = x.SetDeadline(time.Time{})
	go func() {
		_, _ = io.Copy(io.Discard, x)
	}()
	hello := webconn.AppendFrame(nil, webText, []byte(`{"hello":{"version":1,"heartbeatMs":600000}}`))
	if protocol == nativeWeb {
		hello = webconn.AppendFrame(nil, webBinary, native(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: wire.Version, HeartbeatMs: 600_000}))
	}
	if _, err := x.Write(hello); err != nil {
		return err
	}
	for turn := 0; ctx.Err() == nil; turn++ {
		if _, err := x.Write(writes[min(turn, len(writes)-1)]); err != nil {
			return err
		}
	}
	return nil
}
