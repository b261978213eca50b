package main

import (
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/load/publisher"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

func TestCountsBecomeMessages(t *testing.T) {
	m := harness.Start(t, harness.Options{})
	c, _ := wireclient.Connect(t, m.EdgeAddr(), &wirev1.Hello{})
	c.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "bench/x"})
	env := map[string]string{"PEERBENCH_TOPIC": "bench/x", "PEERBENCH_SIZE": "100"}
	err := run(t.Context(), []string{m.RouterAddr()}, strings.NewReader("1\n70\n0\n2\n"), func(k string) string { return env[k] })
	if err != nil {
		t.Fatal(err)
	}
	for range 73 {
		if p := c.Message().GetPayload(); len(p) != 100 || !strings.HasPrefix(string(p), publisher.Mark) {
			t.Fatalf("got %q", p)
		}
	}
}

func TestNonsenseIsRefused(t *testing.T) {
	m := harness.Start(t, harness.Options{})
	topic := func(k string) string { return map[string]string{"PEERBENCH_TOPIC": "room//x"}[k] }
	if err := run(t.Context(), []string{m.RouterAddr()}, strings.NewReader("many\n"), topic); err == nil || !strings.Contains(err.Error(), "not a count") {
		t.Fatalf("got %v", err)
	}
	if err := run(t.Context(), []string{m.RouterAddr()}, strings.NewReader("1\n"), topic); err == nil || !strings.Contains(err.Error(), "BAD_TOPIC") {
		t.Fatalf("got %v", err)
	}
	if err := run(t.Context(), nil, nil, topic); err == nil {
		t.Fatal("no router, and no error")
	}
}
