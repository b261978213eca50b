package pushmesh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
)

func addrsOf(places []place) (all []string) {
	for _, p := range places {
		all = append(all, p.addr)
	}
	return all
}

// A round has every place once, the one tried last at its end, and no order of its own: clients of
// a place that is gone spread.
func TestRoundsOfARoute(t *testing.T) {
	addrs := []string{"a:1", "b:1", "c:1", "d:1"}
	after := map[string]int{}
	for range 400 {
		r := newRoute(addrs, nil)
		var got []string
		for range addrs {
			got = append(got, r.next(t.Context()).addr)
		}
		if !r.round() || r.round() {
			t.Fatal("a round is over when all were tried, and then a new one begins")
		}
		last := got[3]
		slices.Sort(got)
		if !slices.Equal(got, addrs) {
			t.Fatalf("a round has %v", got)
		}
		first := r.next(t.Context())
		if first.addr == last {
			t.Fatal("what was tried last came at once again")
		}
		if last == "a:1" {
			after[first.addr]++
		}
		if slices.Contains(r.others(), first) || len(r.others()) != 3 {
			t.Fatalf("others than %v: %v", first, r.others())
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
	r := newRoute(addrs, look)
	var got []place
	for range 8 {
		got = append(got, r.next(t.Context()))
	}
	list := addrsOf(got)
	slices.Sort(list)
	want := []string{"10.0.0.1:1", "10.0.0.2:1", "10.0.0.9:1", "[fd00::1]:1", "[fd00::9]:1", "dns:///routers:1", "unix:///run/r", "unknown:1"}
	if !slices.Equal(list, want) {
		t.Errorf("places %v", list)
	}
	for _, p := range got {
		if strings.HasPrefix(p.addr, "10.0.0.1:") && p.name != "routers:1" || p.addr == "10.0.0.9:1" && p.name != p.addr {
			t.Errorf("%q is named %q", p.addr, p.name)
		}
	}
	before := asked
	names["routers"] = []string{"10.0.0.7"}
	r.found()
	if r.next(t.Context()); asked == before {
		t.Error("a new round asks for no addresses")
	}
	if list := addrsOf(r.order); !slices.Contains(list, "10.0.0.7:1") || slices.Contains(list, "10.0.0.1:1") {
		t.Errorf("after a change: %v", list)
	}
}

// One name with two addresses: when the router at one of them ends, the producer goes to the other
// one; so does a subscriber.
func TestANameLeadsToAnotherAddress(t *testing.T) {
	r := newFakeRouter(t)
	_, port, _ := net.SplitHostPort(r.addr)
	second := newDoor(t, r, "127.0.0.2:"+port)
	look := func(context.Context, string) ([]string, error) { return []string{"127.0.0.1", "127.0.0.2"}, nil }
	p := newTestProducer(t, ProducerConfig{Addrs: []string{"routers.test:" + port}, lookup: look})
	end := keepPublishing(t, p, "room/a")
	waitUntil(t, func() bool { return len(r.log("room/a")) > 5 })
	if second.streams.Load() > 0 {
		second.stop()
	} else {
		r.stop()
	}
	before := len(r.log("room/a"))
	waitUntil(t, func() bool { return len(r.log("room/a")) > before+5 })
	checkLog(t, r, "room/a", end())

	e := newFakeEdge(t)
	_, port, _ = net.SplitHostPort(e.addr())
	// nobody at the first
	hosts := func(context.Context, string) ([]string, error) { return []string{"127.0.0.3", "127.0.0.1"}, nil }
	newTestSubscriber(t, SubscriberConfig{Addrs: []string{fmt.Sprint("edges.test:", port)}, lookup: hosts})
	e.welcome()
}
