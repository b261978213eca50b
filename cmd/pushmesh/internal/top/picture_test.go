package top

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/survey"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

var rewrite = flag.Bool("rewrite", false, "write what is shown into testdata")

// recorded is what the tiers of a mesh under load answered; b is two seconds after a.
func recorded(t *testing.T, name, which string) *survey.Metrics {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+"."+which+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1_795_000_000, 0)
	if which == "b" {
		at = at.Add(2 * time.Second)
	}
	m, err := survey.Parse(text, at)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func reading(t *testing.T, which string) *Reading {
	t.Helper()
	all := []*pushmeshv1.Node{
		{Tier: pushmeshv1.Tier_TIER_EDGE, Id: "edge-1", Connections: 1, Incarnation: 1},
		{Tier: pushmeshv1.Tier_TIER_EDGE, Id: "edge-far-away", Connections: 70_000, Draining: true},
		{Tier: pushmeshv1.Tier_TIER_EDGE, Id: "edge-z", Connections: 3, Ready: pushmeshv1.Ready_READY_NO},
		{Tier: pushmeshv1.Tier_TIER_ROUTER, Id: "router-1", Ready: pushmeshv1.Ready_READY_YES},
		{Tier: pushmeshv1.Tier_TIER_COMPUTE, Id: "compute-1"},
		{Tier: pushmeshv1.Tier_TIER_COMPUTE, GrpcAddress: "10.0.0.9:7402", Problem: "rpc error: code = Unavailable\ndesc = refused"},
		{Tier: pushmeshv1.Tier_TIER_STORE, Id: "store-1", Shards: 1024},
	}
	r := &Reading{Via: "router-1", At: time.Unix(1_795_000_002, 0), Nodes: all, Metrics: make([]*survey.Metrics, len(all)), Errs: make([]error, len(all))}
	for i, name := range map[int]string{0: "edge", 3: "router", 4: "compute", 6: "store"} {
		r.Metrics[i] = recorded(t, name, which)
	}
	r.Errs[1] = errors.New("dial tcp 10.0.0.2:7480: i/o timeout")
	// One that restarted in between: its rates are not of one process.
	r.Metrics[2] = recorded(t, "edge", "a")
	if all[2].Incarnation = 1; which == "b" {
		all[2].Incarnation = 2
	}
	return r
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("shown:\n%s\nwant:\n%s", got, want)
	}
}

func TestPicture(t *testing.T) {
	for name, order := range map[string]Order{"name": ByName, "load": ByLoad, "delay": ByDelay} {
		golden(t, "by_"+name+".golden", strings.Join(Picture(reading(t, "b"), reading(t, "a"), order), "\n")+"\n")
	}
	golden(t, "first.golden", strings.Join(Picture(reading(t, "a"), nil, ByName), "\n")+"\n")
}

func TestUnits(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.25: "0.2", 3: "3", 9.96: "10", 1234: "1234", 99_999: "99999", 123_456: "123k", 1_234_567: "1.2M", 123_456_789: "123M"} {
		if got := count(v); got != want {
			t.Errorf("count(%v) = %q, want %q", v, got, want)
		}
	}
	for v, want := range map[float64]string{0: "0", 1000: "1000", 1024: "1.0K", 64 << 20: "64M", 1.5 * (1 << 30): "1.5G"} {
		if got := size(v); got != want {
			t.Errorf("size(%v) = %q, want %q", v, got, want)
		}
	}
	for v, want := range map[float64]string{0.0000012: "1.2µs", 0.00012345: "123µs", 0.0012345: "1.2ms", 0.0512: "51ms", 1.2345: "1.23s"} {
		if got := seconds(v); got != want {
			t.Errorf("seconds(%v) = %q, want %q", v, got, want)
		}
	}
	if got := showBreaker(1); got != "half-open" {
		t.Errorf("breaker %q", got)
	}
}
