//go:build firstuser

// Package firstuser does what somebody does who has a release and nothing else of pushmesh:
// scripts/first-user. Every program and command is that of a README in the release, or of the
// playground.
package firstuser

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/test/chromium"
	"github.com/pushmesh/pushmesh/test/procmesh"
)

const (
	// most is how long a new user may take until the first message.
	most = 300 * time.Second
	// patience is how long a program may take to end.
	patience = 2 * time.Minute
	// where JavaScript's README has its page.
	page = "http://localhost:5173"
)

func TestMain(m *testing.M) {
	code := m.Run()
	procmesh.Cleanup()
	os.Exit(code)
}

// A new user has a message from a Go backend in a browser's tab within five minutes, and then the
// same with Python.
func TestAFirstUser(t *testing.T) {
	u := newUser(t)
	began := time.Now()
	site := httptest.NewServer(http.FileServer(http.Dir(u.in("page"))))
	t.Cleanup(site.Close)

	u.does(".", "tar", "-xzf", u.archive)
	u.installsTheClient()
	u.startsAMesh(site.URL)
	u.saysWrongThings()

	b := chromium.Start(t)
	u.chatsInNode()
	u.makesAPage(b)
	follow, publish := u.makesABackend()
	tab := newTab(b, site.URL)
	tab.says(`^client:tess: hello from TypeScript$`, 1)
	follow.says(`^room/42/chat \d+ hello from TypeScript$`)
	publish()
	tab.says(`: hello$`, 1)
	took := time.Since(began).Round(time.Second / 10)
	tab.says(`: bye$`, 1)
	t.Logf("the first message of a Go backend is in a tab after %v", took)
	if took > most {
		t.Errorf("the first message took %v, at most %v", took, most)
	}
	u.opensAWrongPage(b, site.URL)

	began = time.Now()
	u.installsPython()
	pyFollow := u.runs("follow.py", "Subscribing", 0)
	pyFollow.says("^listening$")
	tab.reload()
	pyFollow.says(`^room/42/chat \d+ hello from TypeScript$`)
	t.Logf("the first message of a tab is in Python after %v", time.Since(began).Round(time.Second/10))
	before := tab.count(`: are you there\?$`)
	pyPublish := u.runs("publish.py", "Publishing", 1)
	pyPublish.says(`^on disk as number \d+$`)
	pyPublish.ends()
	tab.says(`: are you there\?$`, before+1)
	pyFollow.says(`^room/42/chat \d+ are you there\?$`)
	u.chatsInPython()
}

// npmReadme is what the package of npm has.
func (u *user) npmReadme() string {
	return u.read(filepath.Join(u.folder, "page", "node_modules", "@pushmesh", "client", "README.md"))
}

// installsTheClient of TypeScript, and what a page is made with.
func (u *user) installsTheClient() {
	u.t.Helper()
	u.write(filepath.Join(u.in("page"), "package.json"), `{"private": true, "type": "module"}`)
	// The compiler and the bundler are those that the client is built with.
	var pinned struct{ DevDependencies map[string]string }
	if err := json.Unmarshal([]byte(u.read("../../clients/js/package.json")), &pinned); err != nil {
		u.t.Fatal(err)
	}
	args := []string{"install", "--prefer-offline", "--no-audit", "--no-fund", u.file("pushmesh-client-*.tgz")}
	for _, tool := range []string{"typescript", "esbuild"} {
		args = append(args, tool+"@"+pinned.DevDependencies[tool])
	}
	u.does("page", "npm", args...)
}

// startsAMesh with the commands of JavaScript's README.
func (u *user) startsAMesh(site string) {
	u.t.Helper()
	lines := commands(section(u.t, u.npmReadme(), "A mesh to try it with"))
	if len(lines) != 3 || !strings.Contains(lines[0], "pushmesh dev --websocket-origins "+page) {
		u.t.Fatalf("README.md has commands that this test does not know: %q", lines)
	}
	// Other ports, for there may be a mesh here, and another page's.
	dev, _, _ := strings.Cut(lines[0], "#")
	mesh := u.starts(".", "sh", "-c", "exec "+strings.Replace(strings.TrimSpace(dev), page, site, 1)+" --ports-from 0")
	u.playground = mesh.says(`^  playground +(http\S+)$`)[1]
	found := mesh.says(`^  subscribers \(TCP\) +(\S+) +health and metrics http://(\S+)$`)
	u.edge, u.edgeHTTP = found[1], found[2]
	u.router = mesh.says(`^  public API \(gRPC\) +(\S+)`)[1]
	mesh.says("^Ctrl-C stops")
	u.does(".", "sh", "-ec", strings.Join(lines[1:], "\n"))
}

// saysWrongThings makes the mistakes of a first hour, each of which is told plainly.
func (u *user) saysWrongThings() {
	u.t.Helper()
	u.fails(`"127.0.0.1": it needs host:port, like 127.0.0.1:7401`, ".", "pushmesh", "pub", "room/42/chat", "hello", "--router", "127.0.0.1")
	u.fails("connection refused", ".", "pushmesh", "pub", "room/42/chat", "hello", "--router", "127.0.0.1:1")
	u.fails("connection refused", ".", "pushmesh", "sub", "room/42/chat", "--edge", "127.0.0.1:1", "--timeout", "5s")
	u.fails("does not speak pushmesh: is it an edge's port (7400)?", ".", "pushmesh", "sub", "room/42/chat", "--edge", u.router, "--timeout", "5s")
	u.fails("does not speak gRPC: is it a router's port (7401)?", ".", "pushmesh", "pub", "room/42/chat", "hello", "--router", u.edge)
	u.fails(`"localhost:5173": an origin is scheme://host`, ".", "pushmesh", "dev", "--websocket-origins", "localhost:5173")
}

// chatsInNode runs the chat of JavaScript's README.
func (u *user) chatsInNode() {
	u.t.Helper()
	u.write(filepath.Join(u.in("page"), "chat.mjs"), programs(u.t, section(u.t, u.npmReadme(), "Chat"), "js")[0])
	if said := u.does("page", "node", "--experimental-websocket", "--no-warnings", "chat.mjs"); said != "client:ann: hello\nclient:ann: bye\n" {
		u.t.Errorf("the chat in Node says %q", said)
	}
}

// makesAPage of the playground's chat in TypeScript, in the topic of the READMEs.
func (u *user) makesAPage(b *chromium.Browser) {
	u.t.Helper()
	b.Open("playground", u.playground)
	b.Until("playground", "it shows a program", `document.querySelector("#code-panel code")?.textContent.includes("@pushmesh/client") === true`)
	var text string
	b.Evaluate("playground", `document.querySelector("#code-panel code").textContent`, &text)
	b.Close("playground")
	if !strings.Contains(text, `"ws://`+u.edge+`"`) || !strings.Contains(text, `"play/chat"`) {
		u.t.Fatalf("the playground shows a program for another mesh:\n%s", text)
	}
	folder := u.in("page")
	u.write(filepath.Join(folder, "chat.ts"), strings.ReplaceAll(text, "play/chat", "room/42/chat"))
	u.write(filepath.Join(folder, "index.html"), "<!doctype html><title>chat</title><link rel=icon href=data:,><script type=module src=chat.js></script>\n")
	tools := filepath.Join(folder, "node_modules", ".bin")
	u.does("page", filepath.Join(tools, "tsc"), "--noEmit", "--strict", "--target", "es2022", "--module", "esnext", "--moduleResolution", "bundler", "--lib", "es2022,dom", "chat.ts")
	u.does("page", filepath.Join(tools, "esbuild"), "chat.ts", "--bundle", "--format=esm", "--log-level=warning", "--outfile=chat.js")
}

// makesABackend of the subscriber and the producer of Go's README, with the module of the release.
// The subscriber runs; publish has the other one run to its end.
func (u *user) makesABackend() (follow *program, publish func()) {
	u.t.Helper()
	cache := strings.TrimSpace(u.does(".", "go", "env", "GOMODCACHE"))
	proxy := strings.TrimSpace(u.does(".", "go", "env", "GOPROXY"))
	u.env = append(u.env, "GOFLAGS=-modcacherw", "GONOSUMDB=github.com/pushmesh/pushmesh", "GOMODCACHE="+u.in("modules"),
		// What others have made is taken from the cache that is there.
		"GOPROXY=file://"+filepath.Join(u.dist, "goproxy")+",file://"+filepath.Join(cache, "cache", "download")+","+proxy)
	u.does("backend", "go", "mod", "init", "example.org/backend")
	u.does("backend", "go", "get", "github.com/pushmesh/pushmesh/client/pushmesh@"+u.version)
	readme := u.read(filepath.Join(u.folder, "modules", "github.com", "pushmesh", "pushmesh@"+u.version, "client", "README.md"))
	for name, heading := range map[string]string{"follow": "Subscribing", "publish": "Publishing"} {
		u.write(filepath.Join(u.in("backend/"+name), "main.go"), u.put(programs(u.t, section(u.t, readme, heading), "go")[0]))
		u.does("backend", "go", "build", "-o", "bin/", "./"+name)
	}
	bin := filepath.Join(u.folder, "backend", "bin")

	before := u.subscriptions()
	follow = u.starts("backend", filepath.Join(bin, "follow"))
	procmesh.Await(u.t, "the subscriber in Go is there", func() bool { return u.subscriptions() == before+1 })
	return follow, func() {
		p := u.starts("backend", filepath.Join(bin, "publish"))
		p.says(`^on disk as number \d+$`)
		p.says(`^ended: <nil>$`)
		p.ends()
	}
}

// subscriptions that the edge has.
func (u *user) subscriptions() int {
	u.t.Helper()
	req, err := http.NewRequestWithContext(u.t.Context(), http.MethodGet, "http://"+u.edgeHTTP+"/metrics", http.NoBody)
	if err != nil {
		u.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		u.t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	if _ = res.Body.Close(); err != nil {
		u.t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^pushmesh_edge_subscriptions(?:\{[^}]*\})? (\d+)$`).FindStringSubmatch(string(text))
	if found == nil {
		u.t.Fatalf("the edge does not say how many subscriptions it has:\n%.3000s", text)
	}
	n := 0
	if _, err := fmt.Sscan(found[1], &n); err != nil {
		u.t.Fatal(err)
	}
	return n
}

// opensAWrongPage: of an origin that was not allowed, and with a port at which nobody listens. The
// browser says so in its console.
func (u *user) opensAWrongPage(b *chromium.Browser, site string) {
	u.t.Helper()
	elsewhere := httptest.NewServer(http.FileServer(http.Dir(u.in("page"))))
	defer elsewhere.Close()
	newTab(b, elsewhere.URL).logs("403")
	wrong := u.in("page/wrong")
	u.write(filepath.Join(wrong, "chat.js"), strings.ReplaceAll(u.read(filepath.Join(u.folder, "page", "chat.js")), u.edge, "127.0.0.1:1"))
	u.write(filepath.Join(wrong, "index.html"), u.read(filepath.Join(u.folder, "page", "index.html")))
	newTab(b, site+"/wrong/").logs("ERR_")
}

// installsPython in an environment of its own, from the wheel; grpcio is Debian's, as its README
// says.
func (u *user) installsPython() {
	u.t.Helper()
	u.does("python", "/usr/bin/python3", "-m", "venv", "--system-site-packages", "venv")
	u.does("python", u.python("pip"), "install", "--no-index", u.file("pushmesh-*.whl"))
}

// python is a command of the environment.
func (u *user) python(command string) string {
	return filepath.Join(u.folder, "python", "venv", "bin", command)
}

// pythonReadme is what the wheel has.
func (u *user) pythonReadme() string {
	u.t.Helper()
	return u.does("python", u.python("python"), "-c", "import importlib.metadata; print(importlib.metadata.metadata('pushmesh').get_payload())")
}

// runs starts a program of Python's README.
func (u *user) runs(name, heading string, number int, args ...string) *program {
	u.t.Helper()
	all := programs(u.t, section(u.t, u.pythonReadme(), heading), "python")
	u.write(filepath.Join(u.in("python"), name), u.put(all[number]))
	return u.starts("python", u.python("python"), append([]string{name}, args...)...)
}

// chatsInPython has two people chat by Python's README, and one who has the address wrong.
func (u *user) chatsInPython() {
	u.t.Helper()
	found := regexp.MustCompile("`(pushmesh namespace put chat [^`]*)`").FindStringSubmatch(section(u.t, u.pythonReadme(), "Publishing"))
	if found == nil {
		u.t.Fatal("README.md does not say how clients may publish")
	}
	u.does(".", "sh", "-ec", found[1])
	ann, bob := u.runs("chat.py", "Publishing", 0, "ann"), u.runs("chat.py", "Publishing", 0, "bob")
	ann.says("^you are in$")
	bob.says("^you are in$")
	ann.tells("hello Bob")
	bob.says("^client:ann: hello Bob$")
	bob.tells("hello Ann")
	ann.says("^client:bob: hello Ann$")
	ann.ends()
	bob.ends()
	u.write(filepath.Join(u.in("python"), "wrong.py"), strings.ReplaceAll(u.read(filepath.Join(u.in("python"), "follow.py")), u.edge, "127.0.0.1"))
	u.fails("'127.0.0.1' must be host:port, like 127.0.0.1:7400", "python", u.python("python"), "wrong.py")
}
