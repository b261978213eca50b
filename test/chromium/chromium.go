// Package chromium has Debian's Chromium open tabs in tests, which speak to it by its debugging
// protocol.
package chromium

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/pushmesh/pushmesh/test/procmesh"
)

// Browser is a browser with its tabs by name. It belongs to one goroutine, and to T: whoever uses
// it in a test within a test says which.
type Browser struct {
	T    testing.TB
	Tabs map[string]*Tab
	addr string
}

// Tab is one of its tabs.
type Tab struct {
	// Events that came beside answers, of the domains that were enabled.
	Events []Event
	conn   *websocket.Conn
	id     int // of the last command
}

// Event is something that happened in a tab.
type Event struct {
	Method string
	Params json.RawMessage
}

// Start starts a browser that ends with the test.
func Start(t testing.TB) *Browser {
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
	b := &Browser{T: t, Tabs: map[string]*Tab{}}
	procmesh.Await(t, "the browser listens", func() bool {
		port, _, whole := strings.Cut(string(first(os.ReadFile(filepath.Join(folder, "DevToolsActivePort")))), "\n")
		b.addr = "127.0.0.1:" + port
		return whole
	})
	return b
}

// first is the value, which is nil where there is an error.
func first(b []byte, _ error) []byte { return b }

// ask has the browser do something with tabs.
func (b *Browser) ask(method, path string) *http.Response {
	b.T.Helper()
	req, err := http.NewRequestWithContext(b.T.Context(), method, "http://"+b.addr+"/json/"+path, http.NoBody)
	if err != nil {
		b.T.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		b.T.Fatal(err)
	}
	return res
}

// Open opens a tab with a page.
func (b *Browser) Open(name, page string) {
	b.T.Helper()
	var target struct {
		WebSocketDebuggerURL string `json:"webSocketDebuggerUrl"`
	}
	res := b.ask(http.MethodPut, "new?"+url.QueryEscape(page))
	defer func() { _ = res.Body.Close() }()
	if err := json.NewDecoder(res.Body).Decode(&target); err != nil {
		b.T.Fatal(err)
	}
	conn, _, err := websocket.Dial(b.T.Context(), target.WebSocketDebuggerURL, nil) //nolint:bodyclose // it need not be closed
	if err != nil {
		b.T.Fatal(err)
	}
	b.T.Cleanup(func() { _ = conn.CloseNow() })
	conn.SetReadLimit(-1)
	b.Tabs[name] = &Tab{conn: conn}
}

// Close closes a tab at once, as a browser does that is ended.
func (b *Browser) Close(name string) {
	b.T.Helper()
	var target struct{ TargetInfo struct{ TargetID string } }
	b.Do(name, "Target.getTargetInfo", nil, &target)
	_ = b.ask(http.MethodGet, "close/"+target.TargetInfo.TargetID).Body.Close()
	delete(b.Tabs, name)
}

// Do has a tab do something, and reads what comes of it into result, which may be nil.
func (b *Browser) Do(name, method string, params, result any) {
	b.T.Helper()
	tab := b.Tabs[name]
	tab.id++
	type answer struct {
		Event
		ID     int
		Result json.RawMessage
		Error  json.RawMessage
	}
	err := wsjson.Write(b.T.Context(), tab.conn, map[string]any{"id": tab.id, "method": method, "params": params})
	var got answer
	for err == nil && got.ID != tab.id {
		got = answer{}
		if err = wsjson.Read(b.T.Context(), tab.conn, &got); got.Method != "" {
			tab.Events = append(tab.Events, got.Event)
		}
	}
	switch {
	case err != nil || got.Error != nil:
		b.T.Fatalf("%s: %v %s", method, err, got.Error)
	case result != nil:
		if err := json.Unmarshal(got.Result, result); err != nil {
			b.T.Fatal(err)
		}
	}
}

// Evaluate reads the value of an expression of a tab's page; false: it has none, for now.
func (b *Browser) Evaluate(name, expression string, value any) bool {
	b.T.Helper()
	var got struct {
		Result struct{ Value json.RawMessage }
	}
	b.Do(name, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &got)
	return json.Unmarshal(got.Result.Value, value) == nil
}

// Until waits for an expression of a tab's page.
func (b *Browser) Until(name, what, expression string) {
	b.T.Helper()
	procmesh.Await(b.T, "tab "+name+": "+what, func() bool {
		var is bool
		return b.Evaluate(name, expression, &is) && is
	})
}
