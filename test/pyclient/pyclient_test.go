// Package pyclient runs the client that was written in Python from docs/protocol.md alone against a
// mesh.
package pyclient

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/test/harness"
)

// patience is how long the client has for everything.
const patience = 5 * time.Minute

// line is what receive.py says: joined, received, left or done.
type line struct {
	Edge      string
	Recovered bool
	Missed    int
	Head      uint64

	Topic   string
	Seq     uint64
	Payload string
	Attempt int

	Left  bool
	RTTus int `json:"rtt_us"`
}

// receiver is a running receive.py.
type receiver struct {
	t     *testing.T
	lines *bufio.Scanner
	in    io.Writer
	err   strings.Builder
	wait  func() error
}

func start(t *testing.T, args ...string) *receiver {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "python3", append([]string{"receive.py"}, args...)...)
	r := &receiver{t: t, wait: cmd.Wait}
	cmd.Stderr = &r.err
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if r.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.lines = bufio.NewScanner(out)
	return r
}

func (r *receiver) next() line {
	r.t.Helper()
	if !r.lines.Scan() {
		err := r.wait()
		r.t.Fatalf("the client ended: %v %v\n%s", err, r.lines.Err(), r.err.String())
	}
	var l line
	if err := json.Unmarshal(r.lines.Bytes(), &l); err != nil {
		r.t.Fatalf("%s: %v", r.lines.Text(), err)
	}
	return l
}

// messages reads the messages first to last of topic, each of which must come once and in order.
func (r *receiver) messages(topic string, first, last int) {
	r.t.Helper()
	for seq := first; seq <= last; seq++ {
		if l := r.next(); l.Topic != topic || l.Seq != uint64(seq) || l.Payload != fmt.Sprint(seq) || l.Attempt != 0 {
			r.t.Fatalf("got %+v, want message %d of %s", l, seq, topic)
		}
	}
}

func TestPythonClientReceivesAndComesBack(t *testing.T) {
	m := harness.Start(t, harness.Options{})
	const topic = "room/python/chat"
	publish := func(first, last int) {
		for n := first; n <= last; n++ {
			m.Publish(t, topic, fmt.Sprint(n))
		}
	}
	r := start(t, m.EdgeAddr(), topic, "60", "20")
	if l := r.next(); l.Edge != "edge-1" || l.Missed != 0 || l.Head != 0 {
		t.Fatalf("joined as %+v", l)
	}
	publish(1, 20)
	r.messages(topic, 1, 20)
	if l := r.next(); !l.Left {
		t.Fatalf("got %+v, want that it left", l)
	}
	publish(21, 40) // while nobody is there
	if _, err := io.WriteString(r.in, "come back\n"); err != nil {
		t.Fatal(err)
	}
	if l := r.next(); !l.Recovered || l.Missed != 0 || l.Head != 40 {
		t.Fatalf("came back as %+v", l)
	}
	publish(41, 60)
	r.messages(topic, 21, 60)
	if l := r.next(); l.RTTus <= 0 {
		t.Fatalf("got %+v, want a round trip", l)
	}
	if r.lines.Scan() {
		t.Fatalf("the client said more: %s", r.lines.Text())
	}
	if err := r.wait(); err != nil {
		t.Fatalf("%v\n%s", err, r.err.String())
	}
}

func TestPythonClientIsRefused(t *testing.T) {
	m := harness.Start(t, harness.Options{})
	r := start(t, m.EdgeAddr(), "room//chat", "1")
	if r.lines.Scan() {
		t.Fatalf("subscribed to nonsense: %s", r.lines.Text())
	}
	if err := r.wait(); err == nil || !strings.Contains(r.err.String(), "'code': 7") {
		t.Fatalf("got %v\n%s", err, r.err.String())
	}
}
