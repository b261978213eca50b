package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/test/load/procfs"
	"github.com/pushmesh/pushmesh/test/procmesh"
	"github.com/pushmesh/pushmesh/test/siege/attack"
	"github.com/pushmesh/pushmesh/test/siege/honest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	procmesh.Cleanup()
	os.Exit(code)
}

// played by the test, small and for a moment each: those that need nothing but a mesh, and of each
// theme the one that finds most.
var played = []string{"last-n", "groups", "nack-window", "nack-loop", "acks", "frames", "garbage", "upgrades", "crumbs", "web-largest", "web-pings", "fragments", "takeovers", "claims", "backends", "nats"}

// moment is how long each goes on.
const moment = time.Second

// Whatever attacks a mesh, small and for a moment: no process ends, every code is one of the closed
// list, honest subscribers can decode what they get and lose nothing durable, and the edge's memory
// rises by less than its budget. What it costs others in time is `make siege`'s to say.
func TestSiegeLeavesOthersWhole(t *testing.T) {
	m := procmesh.Start(t, procmesh.Options{})
	for _, ns := range attack.Namespaces() {
		m.Namespace(t, ns.GetPrefix(), ns.GetPolicy())
	}
	target := &attack.Target{Edge: m.EdgeAddrs[0], Router: m.RouterAddrs[0], NATS: m.NATSAddr(0), Topics: 500, Percent: 2}
	crowd, err := honest.Start(t.Context(), honest.Config{
		Edge: target.Edge, Router: target.Router, Subscribers: 40, Topics: 4, LiveRate: 40, DurableRate: 20, Newcomers: 1, NewcomersEvery: 100 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = crowd.Close() }()
	before := rss(t, m.Edges[0])
	for _, a := range attack.All() {
		for _, name := range played {
			if a.Name == name {
				play(t, m, target, a)
			}
		}
	}
	if err := crowd.Settle(t.Context()); err != nil {
		t.Error(err)
	}
	f := crowd.Take()
	if f.Garbled > 0 {
		t.Errorf("honest subscribers got %d messages that can't be decoded", f.Garbled)
	}
	for _, k := range honest.Kinds() {
		if f.N[k] == 0 {
			t.Errorf("%v: nothing was measured", k)
		}
	}
	if rise := rss(t, m.Edges[0]) - before; rise > mostRise {
		t.Errorf("the edge's memory rose by %d MiB, %d at most", rise>>20, mostRise>>20)
	}
}

func play(t *testing.T, m *procmesh.Mesh, target *attack.Target, a attack.Attack) {
	t.Helper()
	if a.Before != nil {
		if err := a.Before(t.Context(), target); err != nil {
			t.Fatalf("%s: %v", a.Name, err)
		}
	}
	codes := &attack.Codes{}
	ctx, cancel := context.WithTimeout(t.Context(), moment)
	defer cancel()
	if err := a.Run(ctx, target, codes); err != nil {
		t.Errorf("%s: %v", a.Name, err)
	}
	got := codes.Counts()
	t.Logf("%s: %s", a.Name, got)
	if len(got.Codes)+len(got.Notes) == 0 {
		t.Errorf("%s got nothing at all", a.Name)
	}
	for note := range got.Notes {
		if strings.Contains(note, "no such code") || strings.Contains(note, "can't be decoded") {
			t.Errorf("%s got %s", a.Name, note)
		}
	}
	for _, p := range [][]*procmesh.Process{m.Edges, m.Routers, m.Stores, {m.Compute, m.NATS}} {
		for _, p := range p {
			if !p.Running() {
				t.Fatalf("%s: %s ended: %v", a.Name, p.Name, p.End())
			}
		}
	}
}

func rss(t *testing.T, p *procmesh.Process) int64 {
	t.Helper()
	n, err := procfs.RSS(p.PID())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Flags are refused that make no siege.
func TestFlags(t *testing.T) {
	for args, want := range map[string]bool{"": true, "-span 60s -only last,acks": true, "-span 0s": false, "-subscribers 0": false, "-only (": false} {
		if _, _, err := parse(strings.Fields(args)); (err == nil) != want {
			t.Errorf("%q: %v", args, err)
		}
	}
	_, only, err := parse([]string{"-only", "tls,acks"})
	if err != nil || !only.MatchString("tls-drip") || !only.MatchString("acks") || only.MatchString("empty-acks") {
		t.Errorf("-only: %v %v", only, err)
	}
}
