//go:build browser

// Package browser has Debian's Chromium subscribe by WebSocket: make browser-test.
package browser

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/test/closing"
	"github.com/pushmesh/pushmesh/test/link"
	"github.com/pushmesh/pushmesh/test/procmesh"
)

func TestMain(m *testing.M) {
	code := m.Run()
	procmesh.Cleanup()
	os.Exit(code)
}

// chromium is a browser with its tabs, to which the test speaks by the browser's debugging
// protocol.
type chromium struct {
	t    *testing.T
	addr string
	tabs map[string]*tab
}

// tab is one of its tabs.
type tab struct {
	conn   *websocket.Conn
	id     int     // of the last command
	events []event // that came beside answers, of the domains that were enabled
}

// event is something that happened in a tab.
type event struct {
	Method string
	Params json.RawMessage
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

func start(t *testing.T) *chromium {
	t.Helper()
	// t.TempDir would miss what dying processes of the browser still write
	folder, err := os.MkdirTemp("", "pushmesh-browser-")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/usr/bin/chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--user-data-dir="+folder, "--remote-debugging-port=0", "about:blank")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			t.Logf("the browser says\n%s", stderr.Bytes()[max(0, stderr.Len()-2000):])
		}
		_ = os.RemoveAll(folder)
	})
	b := &chromium{t: t, tabs: map[string]*tab{}}
	procmesh.Await(t, "the browser listens", func() bool {
		port, _, whole := strings.Cut(string(first(os.ReadFile(filepath.Join(folder, "DevToolsActivePort")))), "\n")
		b.addr = "127.0.0.1:" + port
		return whole
	})
	return b
}

// first is the value, which is nil where there is an error.
func first(b []byte, _ error) []byte { return b }

// open opens a tab.
func (b *chromium) open(name, page string) {
	b.t.Helper()
	var target struct {
		WebSocketDebuggerURL string `json:"webSocketDebuggerUrl"`
	}
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodPut, "http://"+b.addr+"/json/new?"+url.QueryEscape(page), http.NoBody)
	if err != nil {
		b.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if err := json.NewDecoder(res.Body).Decode(&target); err != nil {
		b.t.Fatal(err)
	}
	conn, _, err := websocket.Dial(b.t.Context(), target.WebSocketDebuggerURL, nil) //nolint:bodyclose // it need not be closed
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = conn.CloseNow() })
	conn.SetReadLimit(-1)
	b.tabs[name] = &tab{conn: conn}
}

// do has a tab do something, and reads what comes of it into result, which may be nil.
func (b *chromium) do(name, method string, params, result any) {
	b.t.Helper()
	tab := b.tabs[name]
	tab.id++
	type answer struct {
		event
		ID     int
		Result json.RawMessage
		Error  json.RawMessage
	}
	err := wsjson.Write(b.t.Context(), tab.conn, map[string]any{"id": tab.id, "method": method, "params": params})
	var got answer
	for err == nil && got.ID != tab.id {
		got = answer{}
		if err = wsjson.Read(b.t.Context(), tab.conn, &got); got.Method != "" {
			tab.events = append(tab.events, got.event)
		}
	}
	switch {
	case err != nil || got.Error != nil:
		b.t.Fatalf("%s: %v %s", method, err, got.Error)
	case result != nil:
		if err := json.Unmarshal(got.Result, result); err != nil {
			b.t.Fatal(err)
		}
	}
}

// evaluate reads the value of an expression of a tab's page; false: it has none, for now.
func (b *chromium) evaluate(name, expression string, value any) bool {
	b.t.Helper()
	var got struct {
		Result struct{ Value json.RawMessage }
	}
	b.do(name, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &got)
	return json.Unmarshal(got.Result.Value, value) == nil
}

func (b *chromium) state(tab string) (s state) {
	b.t.Helper()
	b.evaluate(tab, "window.state", &s) // a page that is just loaded has none
	return s
}

// reload loads a tab's page anew, and does something meanwhile.
func (b *chromium) reload(tab string, meanwhile func()) {
	b.t.Helper()
	var is bool
	b.evaluate(tab, "window.before = true", &is)
	b.do(tab, "Page.reload", nil, nil)
	meanwhile()
	procmesh.Await(b.t, tab+" is loaded anew", func() bool {
		return b.evaluate(tab, "window.state?.subscribed > 0 && !window.before", &is) && is
	})
}

// has waits until a tab has all messages up to n, in their order.
func (b *chromium) has(tab string, n int) state {
	b.t.Helper()
	var s state
	procmesh.Await(b.t, fmt.Sprintf("tab %s has %d messages", tab, n), func() bool {
		s = b.state(tab)
		return s.Last >= n || len(s.Disorder) > 0 || len(s.Faults) > 0
	})
	if s.Last != n || len(s.Disorder) > 0 || len(s.Faults) > 0 {
		b.t.Fatalf("tab %s: %+v", tab, s)
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
		b.open(tab, site+"/page.html?"+url.Values{"edge": {"ws://" + network.Addr() + "/"}, "client": {tab}, "topic": {topic}}.Encode())
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
func hides(t *testing.T, b *chromium, span time.Duration, each func()) {
	t.Helper()
	b.do("second", "Page.bringToFront", nil, nil)
	procmesh.Await(t, "the first tab is hidden", func() bool {
		var is string
		b.evaluate("first", "document.visibilityState", &is)
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
func offline(t *testing.T, b *chromium, network *link.Link, publish func(int)) {
	t.Helper()
	set := func(offline bool) {
		for tab := range b.tabs {
			b.do(tab, "Network.emulateNetworkConditions", map[string]any{"offline": offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}, nil)
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
