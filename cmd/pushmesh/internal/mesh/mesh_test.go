package mesh

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait of these tests; nothing comes near it.
const patience = 2 * time.Minute

type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// fakes is a folder in which every binary of a mesh is this test.
func fakes(t *testing.T) (s Settings, ends string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"edge", "router", "compute", "store", "nats-server"} {
		if err := os.Symlink(self, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	ends = filepath.Join(dir, "ends")
	t.Setenv(childEnv, ends)
	t.Setenv("GORACE", "atexit_sleep_ms=0") // a second for each child otherwise
	return Settings{
		Bin: dir, NATSServer: filepath.Join(dir, "nats-server"), Postgres: "postgres://nowhere", Dir: t.TempDir(), FreePorts: true,
		Ready: patience, Grace: patience,
	}, ends
}

func started(t *testing.T, s Settings) (*Mesh, *output) {
	t.Helper()
	out := &output{}
	m, err := New(s, out)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m, out
}

func TestStopsInReverseOrder(t *testing.T) {
	set, ends := fakes(t)
	m, _ := started(t, set)
	state, err := readState(set.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(state.Processes) != 7 || len(state.Edges) != 2 || len(state.Routers) != 2 || state.Pid != os.Getpid() {
		t.Fatalf("state %+v", state)
	}
	for _, addr := range append(state.Edges, state.Routers...) {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	if err := m.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(ends)
	if err != nil {
		t.Fatal(err)
	}
	if want := "edge-2 edge-1 router-2 router-1 compute-1 store-1 nats-server"; strings.Join(strings.Fields(string(got)), " ") != want {
		t.Fatalf("stopped %s, want %s", got, want)
	}
	for _, p := range state.Processes {
		if syscall.Kill(p.Pid, 0) == nil {
			t.Errorf("%s runs on", p.Name)
		}
	}
}

func TestRestartsWhatDies(t *testing.T) {
	set, _ := fakes(t)
	set.Restart = true
	m, out := started(t, set)
	before := m.State().Processes[5]
	if before.Name != "edge-1" {
		t.Fatalf("process %+v", before)
	}
	if err := syscall.Kill(before.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return strings.Contains(out.String(), "edge-1 started again") })
	after, err := readState(set.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if p := after.Processes[5]; p.Pid == before.Pid || p.Addr != before.Addr {
		t.Errorf("before %+v, after %+v", before, p)
	}
	await(t, func() bool {
		conn, err := net.Dial("tcp", before.Addr)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	if err := m.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestTellsOfADeathWithoutRestart(t *testing.T) {
	set, _ := fakes(t)
	m, out := started(t, set)
	if err := syscall.Kill(m.State().Processes[1].Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return strings.Contains(out.String(), "store-1 ended: signal: killed") })
	if err := m.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestKillsWhatDoesNotStop(t *testing.T) {
	t.Setenv(stubborn, "router-1")
	for grace := 300 * time.Millisecond; ; grace *= 8 {
		// a busy machine may take the others longer, too
		set, ends := fakes(t)
		set.Grace = grace
		m, _ := started(t, set)
		if err := m.Stop(t.Context()); err == nil || !strings.Contains(err.Error(), "router-1 did not stop") {
			t.Fatalf("got %v", err)
		}
		got, err := os.ReadFile(ends)
		if err == nil && strings.Contains(string(got), "nats-server") {
			return
		}
		if grace > 10*time.Second {
			t.Fatalf("the others were not stopped: %q %v", got, err)
		}
	}
}

func TestReportsABadEnd(t *testing.T) {
	set, _ := fakes(t)
	t.Setenv(wrongfully, "edge-2")
	m, _ := started(t, set)
	if err := m.Stop(t.Context()); err == nil || !strings.Contains(err.Error(), "edge-2: exit status 2") {
		t.Fatalf("got %v", err)
	}
}

func TestFailedStartLeavesNothing(t *testing.T) {
	set, ends := fakes(t)
	t.Setenv(stillborn, "edge-1")
	m, err := New(set, &output{})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "edge-1: ended before it was ready") {
		t.Fatalf("got %v", err)
	}
	if got, err := os.ReadFile(ends); err != nil || !strings.Contains(string(got), "nats-server") {
		t.Fatalf("the others were not stopped: %q %v", got, err)
	}
}

func TestCheckNamesEveryMissingBinary(t *testing.T) {
	err := Settings{Bin: t.TempDir(), NATSServer: "/does/not/exist"}.Check()
	for _, want := range []string{"--nats-server", "edge", "router", "compute", "store"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not named by %v", want, err)
		}
	}
}

func TestCheckBoundsNATSServers(t *testing.T) {
	if err := (Settings{NATSServers: 8}).Check(); err == nil || !strings.Contains(err.Error(), "--nats-servers") {
		t.Errorf("8 servers: %v", err)
	}
}

func await(t *testing.T, done func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("waited too long")
		}
	}
}

// readState reads the state file of a mesh in dir.
func readState(dir string) (State, error) {
	var s State
	text, err := os.ReadFile(filepath.Join(dir, StateFile))
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(text, &s)
}
