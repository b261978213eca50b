//go:build browser

// Package browser has Debian's Chromium subscribe by WebSocket: make browser-test.
package browser

import (
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/test/chromium"
	"github.com/pushmesh/pushmesh/test/closing"
	"github.com/pushmesh/pushmesh/test/link"
	"github.com/pushmesh/pushmesh/test/procmesh"
)

func TestMain(m *testing.M) {
	code := m.Run()
	procmesh.Cleanup()
	os.Exit(code)
}

// browser is one with what these tests do in its tabs.
type browser struct{ *chromium.Browser }

func start(t *testing.T) *browser {
	t.Helper()
	return &browser{chromium.Start(t)}
}

// state is what page.mjs has of a tab.
type state struct {
	Last         int
	Again        int
	Disorder     []string
	Subscribed   int
	Closes       []int
	Faults       []string
	LongestPause float64 // milliseconds between two runs of a timer that is to run each second
}

func (b *browser) state(tab string) (s state) {
	b.T.Helper()
	b.Evaluate(tab, "window.state", &s) // a page that is just loaded has none
	return s
}

// reload loads a tab's page anew, and does something meanwhile.
func (b *browser) reload(tab string, meanwhile func()) {
	b.T.Helper()
	var is bool
	b.Evaluate(tab, "window.before = true", &is)
	b.Do(tab, "Page.reload", nil, nil)
	meanwhile()
	procmesh.Await(b.T, tab+" is loaded anew", func() bool {
		return b.Evaluate(tab, "window.state?.subscribed > 0 && !window.before", &is) && is
	})
}

// has waits until a tab has all messages up to n, in their order.
func (b *browser) has(tab string, n int) state {
	b.T.Helper()
	var s state
	procmesh.Await(b.T, fmt.Sprintf("tab %s has %d messages", tab, n), func() bool {
		s = b.state(tab)
		return s.Last >= n || len(s.Disorder) > 0 || len(s.Faults) > 0
	})
	if s.Last != n || len(s.Disorder) > 0 || len(s.Faults) > 0 {
		b.T.Fatalf("tab %s: %+v", tab, s)
	}
	return s
}

// pages serves page.html and what it needs.
func pages(t *testing.T) (url string) {
	t.Helper()
	mux := http.NewServeMux()
	// A browser reads the SDK as it was built, without a bundler.
	mux.Handle("GET /client/", http.StripPrefix("/client/", http.FileServer(http.Dir("../../../clients/js/dist"))))
	for name, file := range map[string]string{
		"page.html": "page.html", "page.mjs": "page.mjs", "frames.mjs": "../clients/frames.mjs",
		"sdk.html": "sdk.html", "sdk.mjs": "sdk.mjs", "sdk-worker.mjs": "sdk-worker.mjs",
	} {
		mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(name, ".mjs") {
				w.Header().Set("Content-Type", "text/javascript")
			}
			http.ServeFile(w, r, file)
		})
	}
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

const topic = "websocket/browser"

// A tab that is hidden for ten minutes stays connected, although its timers hardly run; a browser
// that was offline goes on where it was; and 10,000 messages come in their order while the page is
// reloaded again and again.
func TestChromium(t *testing.T) {
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
	t.Cleanup(func() { _ = closing.Close(p) })
	published := 0
	publish := func(n int) {
		t.Helper()
		for range n {
			published++
			if err := p.PublishAsync(t.Context(), pushmesh.Message{Topic: topic, Payload: []byte(strconv.Itoa(published))}, func(_ pushmesh.Result, err error) {
				if err != nil {
					t.Error(err)
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	b := start(t)
	for _, tab := range []string{"first", "second"} {
		b.Open(tab, site+"/page.html?"+url.Values{"edge": {"ws://" + network.Addr() + "/"}, "client": {tab}, "topic": {topic}}.Encode())
		procmesh.Await(t, tab+" is subscribed", func() bool { return b.state(tab).Subscribed == 1 })
	}
	publish(100)
	b.has("first", published)
	b.has("second", published)

	hides(t, b, hidden, func() { publish(1) })
	b.has("first", published)
	if s := b.has("second", published); s.Subscribed != 1 || len(s.Closes) > 0 {
		t.Errorf("the tab in front was closed: %+v", s)
	}
	t.Logf("one tab was hidden for %v", hidden)

	offline(t, b, network, publish)
	b.has("first", published)
	b.has("second", published)

	for range 20 {
		publish(250)
		b.reload("second", func() { publish(250) })
	}
	b.has("first", published)
	s := b.has("second", published)
	t.Logf("%d messages, of which %d came again to the page as it was last loaded", published, s.Again)
}

// hides has the first tab be hidden for a while, in which something comes each second.
func hides(t *testing.T, b *browser, span time.Duration, each func()) {
	t.Helper()
	b.Do("second", "Page.bringToFront", nil, nil)
	procmesh.Await(t, "the first tab is hidden", func() bool {
		var is string
		b.Evaluate("first", "document.visibilityState", &is)
		return is == "hidden"
	})
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for end := time.Now().Add(span); time.Now().Before(end); <-tick.C {
		each()
	}
	s := b.state("first")
	if s.Subscribed != 1 || len(s.Closes) > 0 {
		t.Errorf("the hidden tab was closed: %+v", s)
	}
	t.Logf("a timer of a second paused for up to %.0f ms there", s.LongestPause)
	// After five minutes browsers run timers of hidden tabs once a minute.
	if span > 7*time.Minute && s.LongestPause < 30_000 {
		t.Errorf("its timers were not held up: %.0f ms at most", s.LongestPause)
	}
}

// offline takes the browser's network away, and gives it back.
func offline(t *testing.T, b *browser, network *link.Link, publish func(int)) {
	t.Helper()
	set := func(offline bool) {
		for tab := range b.Tabs {
			b.Do(tab, "Network.emulateNetworkConditions", map[string]any{"offline": offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}, nil)
		}
	}
	set(true)
	network.Set("", link.Fault{Cut: true})
	for _, tab := range []string{"first", "second"} {
		procmesh.Await(t, tab+" has lost its connection", func() bool { return len(b.state(tab).Closes) > 0 })
	}
	publish(500)
	network.Set("", link.Fault{})
	set(false)
}
