//go:build browser

package browser

import (
	"cmp"
	"context"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/test/link"
	"github.com/pushmesh/pushmesh/test/procmesh"
)

// The SDK in a browser: a tab that is hidden goes on and gets everything, a network that was away
// is nothing that the program notices, and two tabs share a connection until the last one is
// closed.
func TestSDK(t *testing.T) {
	hidden, err := time.ParseDuration(cmp.Or(os.Getenv("PUSHMESH_BROWSER_HIDDEN"), "10m"))
	if err != nil {
		t.Fatal(err)
	}
	site := pages(t)
	m := procmesh.Start(t, procmesh.Options{EdgeArgs: []string{"--websocket-origins", site}})
	m.Namespace(t, "websocket", &pushmeshv1.Policy{Durable: true})
	network := link.New(t, m.EdgeAddrs[0], nil)
	p, err := pushmesh.NewProducer(pushmesh.ProducerConfig{Addrs: m.RouterAddrs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	published := 0
	publish := func(n int) {
		t.Helper()
		for range n {
			published++
			if _, err := p.Publish(t.Context(), pushmesh.Message{Topic: topic, Payload: []byte(strconv.Itoa(published))}); err != nil {
				t.Fatal(err)
			}
		}
	}
	gauge := func(name string) float64 {
		t.Helper()
		all, err := m.Edges[0].Metrics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return all[name]
	}
	subscriptions := func(n float64) {
		t.Helper()
		procmesh.Await(t, "there are "+strconv.Itoa(int(n))+" subscriptions", func() bool { return gauge("pushmesh_edge_subscriptions") == n })
	}

	b := start(t)
	for _, tab := range []string{"first", "second", "one", "two"} {
		query := url.Values{"edge": {"ws://" + network.Addr() + "/"}, "client": {tab}, "topic": {topic}}
		if tab == "one" || tab == "two" {
			query.Set("client", "worker")
			query.Set("shared", "")
		}
		b.Open(tab, site+"/sdk.html?"+query.Encode())
		procmesh.Await(t, tab+" is connected", func() bool { return b.state(tab).Subscribed == 1 })
	}
	subscriptions(4)
	if n := gauge("pushmesh_edge_connections"); n != 3 {
		t.Errorf("four tabs, of which two share one, have %v connections", n)
	}
	all := func() {
		t.Helper()
		for tab := range b.Tabs {
			if s := b.has(tab, published); s.Again > 0 {
				t.Errorf("tab %s got %d messages twice", tab, s.Again)
			}
		}
	}
	publish(100)
	all()

	hides(t, b, hidden, func() { publish(1) })
	all()
	t.Logf("one tab was hidden for %v", hidden)

	network.Set("", link.Fault{Cut: true})
	for tab := range b.Tabs {
		procmesh.Await(t, tab+" has lost its connection", func() bool { return len(b.state(tab).Closes) > 0 })
	}
	publish(500)
	network.Set("", link.Fault{})
	all()

	b.Close("one")
	subscriptions(3)
	publish(10)
	all()
	b.Close("two")
	subscriptions(2)
	if faults := strings.Join(b.state("first").Faults, "; "); faults != "" {
		t.Error(faults)
	}
}
