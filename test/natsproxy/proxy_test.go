package natsproxy

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

func TestLosesOneMessage(t *testing.T) {
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(srv.Shutdown)
	if !srv.ReadyForConnections(time.Minute) {
		t.Fatal("nats-server is not ready")
	}
	p := Start(t, srv.Addr().String())
	c, err := nats.Connect(p.URL(), nats.NoReconnect())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sub, err := c.SubscribeSync("a.>")
	if err != nil {
		t.Fatal(err)
	}
	lost := 0
	p.Lose(func(subject string, payload []byte) bool {
		if subject == "a.b" && string(payload) == "2" {
			lost++
			return true
		}
		return false
	})
	for _, m := range []string{"1", "2", "3"} {
		msg := nats.NewMsg("a.b")
		msg.Data = []byte(m)
		if m == "3" {
			msg.Header.Set("h", "v")
		}
		if err := c.PublishMsg(msg); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"1", "3"} {
		m, err := sub.NextMsg(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if string(m.Data) != want {
			t.Fatalf("got %q, want %q", m.Data, want)
		}
	}
	if lost != 1 {
		t.Fatalf("lost %d", lost)
	}
	p.SetDown(true)
	deadline := time.Now().Add(time.Minute)
	for c.IsConnected() {
		if time.Now().After(deadline) {
			t.Fatal("still connected")
		}
		_ = c.FlushTimeout(100 * time.Millisecond)
	}
}
