package e2e

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/meshid"
	"github.com/pushmesh/pushmesh/internal/meshid/meshidtest"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/procmesh"
)

// A bus whose mesh is not known yet is like one without a server: it says so, sends nothing, and
// hears nothing. Once the mesh is known whoever subscribed before hears it, and is told that
// something may have been missed; whoever left before does not.
func TestABusJoinsItsMesh(t *testing.T) {
	t.Parallel()
	url := "nats://" + harness.StartNATS(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	open := func(mesh *meshid.Identity) *bus.Bus {
		b := bus.New(bus.Config{URL: url, Name: "test", Mesh: mesh, Log: slog.New(slog.DiscardHandler)})
		if err := b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Stop(t.Context()) })
		return b
	}
	member, foreigner := open(meshidtest.Identity()), open(meshid.Fixed(meshid.Mesh{Name: meshidtest.Mesh.Name, ID: meshid.NewID()}))
	belongs := meshid.New("")
	b := open(belongs)
	gaps, heard := make(chan struct{}, 100), make(chan string, 100)
	b.OnGap(func() { gaps <- struct{}{} })
	hear := func(name string) func([]byte, func([]byte) error) {
		return func(data []byte, respond func([]byte) error) {
			heard <- name + ":" + string(data)
			_ = respond(data)
		}
	}
	leaves := func(leave func(), err error) func() {
		if err != nil {
			t.Fatal(err)
		}
		return leave
	}
	leaves(b.Subscribe("a", 100, hear("stays")))
	leaves(b.Subscribe("a", 100, hear("left")))()
	leaves(b.Serve("asked", "group", 100, hear("serves")))
	inbox, err := b.Listen(100, "listened")
	if err != nil {
		t.Fatal(err)
	}
	if b.Connected() || b.Check() == nil || code.Of(b.Publish("a", nil)) != wirev1.Code_CODE_UNAVAILABLE {
		t.Error("it takes part in a mesh that it does not know")
	}
	if err := belongs.Learn(meshidtest.Mesh); err != nil {
		t.Fatal(err)
	}
	procmesh.Await(t, "it joins", func() bool { return b.Connected() && member.Connected() && foreigner.Connected() })
	select {
	case <-gaps:
	case <-time.After(time.Minute):
		t.Fatal("nobody is told that it joined")
	}
	if err := b.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	for _, from := range []*bus.Bus{foreigner, member} {
		for _, subject := range []string{"a", "listened"} {
			if err := from.Publish(subject, []byte(map[bool]string{true: "own", false: "foreign"}[from == member])); err != nil {
				t.Fatal(err)
			}
		}
		if err := from.Flush(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if answer, err := member.Request(ctx, "asked", []byte("own")); err != nil || string(answer) != "own" {
		t.Errorf("asked: %q, %v", answer, err)
	}
	if _, err := foreigner.Request(ctx, "asked", nil); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
		t.Errorf("another mesh asks: %v", err)
	}
	got := map[string]bool{<-heard: true, <-heard: true}
	if m := <-inbox.C(); string(m.Data) != "own" || !got["stays:own"] || !got["serves:own"] || len(heard) > 0 || len(inbox.C()) > 0 {
		t.Errorf("heard %v, %s", got, m.Data)
	}
	inbox.Leave()
}
