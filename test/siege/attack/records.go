package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"os/exec"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func withoutTLS(t *Target) string {
	if t.TLS {
		return ""
	}
	return "the edge takes no TLS"
}

func records() []Attack {
	return []Attack{{
		Name: "tls-drip", What: "1,000 connections that send a TLS record of 16 KiB byte by byte", Metric: "pushmesh_edge_frame_bytes", Unless: withoutTLS,
		Run: drip,
	}, {
		Name: "tls-handshakes", What: "64 connections at a time that send a ClientHello and leave", Metric: "pushmesh_edge_tls_handshakes_total", Unless: withoutTLS,
		Run: handshakes,
	}, {
		Name: "tls-tiny", What: "8 connections that send TLS records of one byte", Metric: "pushmesh_edge_reads_deferred_total", Unless: withoutTLS,
		Run: tiny,
	}, {
		Name: "tls-renegotiate", What: "8 clients of TLS 1.2 that ask for another handshake again and again", Metric: "pushmesh_edge_closes_total", Unless: withoutOpenSSL,
		Run: renegotiate,
	}}
}

func withoutOpenSSL(t *Target) string {
	if _, err := exec.LookPath("openssl"); err != nil {
		return "there is no openssl"
	}
	return withoutTLS(t)
}

// renegotiate has OpenSSL's client ask for a handshake on a connection that has one: Go's can't.
func renegotiate(ctx context.Context, t *Target, c *Codes) error {
	return many(ctx, 8, c, func(ctx context.Context, _ int) error {
		x := exec.CommandContext(ctx, "openssl", "s_client", "-tls1_2", "-connect", t.Edge)
		x.Stdin = strings.NewReader(strings.Repeat("R\n", 1000))
		out, err := x.CombinedOutput()
		if bytes.Contains(out, []byte("RENEGOTIATING")) { // what it says that it does
			c.Note("asked for a handshake, and was ended")
			return nil
		}
		return err
	})
}

// anyone trusts every certificate, as attackers do.
// #nosec G402 -- it trusts a server that it attacks
var anyone = &tls.Config{InsecureSkipVerify: true}

// secure connects with TLS, which leaves the plain connection in hand.
func (t *Target) secure(ctx context.Context) (net.Conn, *tls.Conn, error) {
	plain, err := t.raw(ctx)
	if err != nil {
		return nil, nil, err
	}
	context.AfterFunc(ctx, func() { _ = plain.Close() })
	within, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	s := tls.Client(plain, anyone)
	if err := s.HandshakeContext(within); err != nil {
		_ = plain.Close()
		return nil, nil, err
	}
	return plain, s, nil
}

func drip(ctx context.Context, t *Target, c *Codes) error {
	return many(ctx, t.of(1000), c, func(ctx context.Context, _ int) error {
		plain, s, err := t.secure(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = plain.Close() }()
		x, err := greetOn(s, c, &wirev1.Hello{})
		if err != nil {
			return err
		}
		go x.listen(nil)
		// The header of a record of 16 KiB, most of the record at once, and then a byte at a time.
		if _, err := plain.Write(append([]byte{23, 3, 3, 0x40, 0}, make([]byte, 12<<10)...)); err != nil {
			return err
		}
		for ctx.Err() == nil {
			if _, err := plain.Write([]byte{0}); err != nil {
				return err
			}
			pause(ctx, time.Second)
		}
		return nil
	})
}

func handshakes(ctx context.Context, t *Target, c *Codes) error {
	hello, err := clientHello()
	if err != nil {
		return err
	}
	return many(ctx, 64, c, func(ctx context.Context, _ int) error {
		x, err := t.raw(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = x.Close() }()
		_ = x.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := x.Write(hello); err != nil {
			return err
		}
		answer := make([]byte, 4<<10)
		n, err := x.Read(answer)
		if err != nil {
			return err
		}
		const alert = 21
		if n > 0 && answer[0] == alert {
			c.Note("TLS alert")
		} else {
			c.Note("ServerHello")
		}
		return nil
	})
}

// clientHello is the first record of a client.
func clientHello() ([]byte, error) {
	ours, theirs := net.Pipe()
	defer func() { _, _ = ours.Close(), theirs.Close() }()
	go func() { _ = tls.Client(theirs, anyone).Handshake() }()
	b := make([]byte, 64<<10)
	n, err := ours.Read(b)
	return b[:n], err
}

func tiny(ctx context.Context, t *Target, c *Codes) error {
	return many(ctx, 8, c, func(ctx context.Context, _ int) error {
		_, s, err := t.secure(ctx)
		if err != nil {
			return err
		}
		x, err := greetOn(s, c, &wirev1.Hello{})
		if err != nil {
			return err
		}
		go x.listen(nil)
		x.add(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 1})
		for ctx.Err() == nil {
			for i := range x.buf {
				if _, err := s.Write(x.buf[i : i+1]); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
