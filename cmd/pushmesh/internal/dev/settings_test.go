package dev

import (
	"strings"
	"testing"
)

func TestPortsKeepWhatWasSet(t *testing.T) {
	s := Settings{Router: "127.0.0.1:9"}
	s.Ports(7400)
	for got, want := range map[string]string{
		s.Edge: "127.0.0.1:7400", s.Router: "127.0.0.1:9", s.Compute: "127.0.0.1:7402", s.Store: "127.0.0.1:7403",
		s.EdgeHTTP: "127.0.0.1:7480", s.RouterHTTP: "127.0.0.1:7481", s.ComputeHTTP: "127.0.0.1:7482", s.StoreHTTP: "127.0.0.1:7483",
		s.Playground: "127.0.0.1:7484",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	free := Settings{}.withDefaults()
	if free.Edge != "127.0.0.1:0" || free.StoreHTTP != "127.0.0.1:0" {
		t.Errorf("free ports: %+v", free)
	}
}

func TestCheckReportsEveryFault(t *testing.T) {
	err := (&Settings{Edge: "nowhere", StoreHTTP: "x", ProducerRate: -1, WebSocketOrigins: []string{"localhost:5173"}}).Check()
	for _, want := range []string{`--edge-listen "nowhere": it needs host:port, like 127.0.0.1:7400`, "--store-http", "--producer-rate", `--websocket-origins: "localhost:5173"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not named by %v", want, err)
		}
	}
	if _, err := New(Settings{Edge: "nowhere"}); err == nil {
		t.Error("New took a bad address")
	}
}
