package reconnect

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

func addrsOf(places []Place) (all []string) {
	for _, p := range places {
		all = append(all, p.Addr)
	}
	return all
}

// A round has every place once, the one tried last at its end, and no order of its own: clients of
// a place that is gone spread.
func TestRoundsOfARoute(t *testing.T) {
	addrs := []string{"a:1", "b:1", "c:1", "d:1"}
	after := map[string]int{}
	for range 400 {
		r := NewRoute(addrs, nil)
		var got []string
		for range addrs {
			got = append(got, r.Next(t.Context()).Addr)
		}
		if !r.Round() || r.Round() {
			t.Fatal("a round is over when all were tried, and then a new one begins")
		}
		last := got[3]
		slices.Sort(got)
		if !slices.Equal(got, addrs) {
			t.Fatalf("a round has %v", got)
		}
		first := r.Next(t.Context())
		if first.Addr == last {
			t.Fatal("what was tried last came at once again")
		}
		if last == "a:1" {
			after[first.Addr]++
		}
		if slices.Contains(r.Others(), first) || len(r.Others()) != 3 {
			t.Fatalf("others than %v: %v", first, r.Others())
		}
	}
	if len(after) != 3 {
		t.Errorf("after a: %v", after)
	}
}

func TestNamesHaveAddresses(t *testing.T) {
	names := map[string][]string{"routers": {"10.0.0.1", "10.0.0.2", "fd00::1"}, "more": {"10.0.0.2"}}
	asked := 0
	look := func(_ context.Context, host string) ([]string, error) {
		asked++
		if names[host] == nil {
			return nil, errors.New("no such host")
		}
		return names[host], nil
	}
	addrs := []string{"routers:1", "unknown:1", "10.0.0.9:1", "[fd00::9]:1", "unix:///run/r", "dns:///routers:1"}
	r := NewRoute(addrs, look)
	var got []Place
	for range 8 {
		got = append(got, r.Next(t.Context()))
	}
	list := addrsOf(got)
	slices.Sort(list)
	want := []string{"10.0.0.1:1", "10.0.0.2:1", "10.0.0.9:1", "[fd00::1]:1", "[fd00::9]:1", "dns:///routers:1", "unix:///run/r", "unknown:1"}
	if !slices.Equal(list, want) {
		t.Errorf("places %v", list)
	}
	for _, p := range got {
		if strings.HasPrefix(p.Addr, "10.0.0.1:") && p.Name != "routers:1" || p.Addr == "10.0.0.9:1" && p.Name != p.Addr {
			t.Errorf("%q is named %q", p.Addr, p.Name)
		}
	}
	before := asked
	names["routers"] = []string{"10.0.0.7"}
	r.Found()
	if r.Next(t.Context()); asked == before {
		t.Error("a new round asks for no addresses")
	}
	if list := addrsOf(r.order); !slices.Contains(list, "10.0.0.7:1") || slices.Contains(list, "10.0.0.1:1") {
		t.Errorf("after a change: %v", list)
	}
}

// The clients that an edge sends elsewhere spread over the places that it names, each of which is
// tried once.
func TestDetoursAreSpread(t *testing.T) {
	first := map[string]int{}
	for range 200 {
		r := NewRoute([]string{"home:1"}, nil)
		r.Detour(Place{"a:1", "a:1"}, Place{"b:1", "b:1"}, Place{"c:1", "c:1"})
		var got []string
		for range 3 {
			if r.Round() {
				t.Fatal("a round is over, and not all were tried")
			}
			got = append(got, r.Next(t.Context()).Addr)
		}
		first[got[0]]++
		if slices.Sort(got); !slices.Equal(got, []string{"a:1", "b:1", "c:1"}) || r.Next(t.Context()).Addr != "home:1" {
			t.Fatalf("went to %v", got)
		}
	}
	if len(first) != 3 {
		t.Errorf("200 clients go first to %v", first)
	}
}
