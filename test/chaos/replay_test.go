package chaos

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/test/procmesh"
)

// What is replayed: one room of the sample at a pace that takes some seconds, with half of the
// connections WebSockets. PUSHMESH_CHAOS_FILE
// names another recording, and PUSHMESH_CHAOS_REPLAY the flags of replay for it ("--fraction 0.1").
func recording() (file string, args []string) {
	if file = os.Getenv("PUSHMESH_CHAOS_FILE"); file != "" {
		return file, strings.Fields(os.Getenv("PUSHMESH_CHAOS_REPLAY"))
	}
	return "../../deploy/sample/rooms.jsonl.gz", []string{"--rooms", "1"}
}

var (
	expectedRE  = regexp.MustCompile(`expected=(\d+)`)
	deliveredRE = regexp.MustCompile(`delivered (\d+)`)
)

// replay plays the recording through the mesh and calls half once, when half of the deliveries are
// there. It fails the test unless every message reached everyone, once to the handler and in order.
// Where it was over before half could be called it is played again, slower.
func replay(t *testing.T, m *procmesh.Mesh, half func()) {
	t.Helper()
	for speed := 8000; speed >= 500; speed /= 2 {
		if replayAt(t, m, speed, half) || t.Failed() {
			return
		}
	}
	t.Error("the replay was over before the fault")
}

func replayAt(t *testing.T, m *procmesh.Mesh, speed int, half func()) (killed bool) {
	t.Helper()
	file, more := recording()
	if os.Getenv("PUSHMESH_CHAOS_FILE") == "" {
		more = append(more, "--speed", strconv.Itoa(speed))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	args := append([]string{"replay", file, "--websocket", "0.5", "--edge", strings.Join(m.EdgeAddrs, ","), "--router", strings.Join(m.RouterAddrs, ","), "--stall", "5m", "--namespace", namespace}, more...)
	cmd := exec.CommandContext(ctx, m.Pushmesh, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	expected, last := 0, ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		last = lines.Text()
		t.Log(last)
		if n, ok := number(expectedRE, last); ok && expected == 0 {
			expected = n
		}
		if n, ok := number(deliveredRE, last); ok && !killed && expected > 0 && n >= expected/2 && n < expected {
			killed = true
			half()
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("replay: %v", err)
	}
	if !strings.Contains(last, "missing=0 duplicate=0 disorder=0") {
		t.Errorf("last line %q", last)
	}
	return killed
}

func number(re *regexp.Regexp, line string) (int, bool) {
	m := re.FindStringSubmatch(line)
	if m == nil {
		return 0, false
	}
	n, err := strconv.Atoi(m[1])
	return n, err == nil
}
