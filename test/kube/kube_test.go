package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/client/pushmesh"
)

// The page's commands are found, all of them, in their order.
func TestThePageHasItsCommands(t *testing.T) {
	t.Parallel()
	blocks, err := fromNothing()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, b := range blocks {
		fmt.Fprintf(&text, "[%s] %s", b.language, b.text)
	}
	rest := text.String()
	for _, want := range []string{
		"[sh] pushmesh ca init ca\n", "create namespace prod\n", "generic postgres-passwords ", "apply -f deploy/helm/examples/postgres.yaml", "pushmesh key create ",
		"[yaml] image:", "[sh] helm -n prod install pushmesh deploy/helm/pushmesh -f values.yaml ", "helm -n prod test pushmesh\n",
	} {
		_, after, found := strings.Cut(rest, want)
		if !found {
			t.Fatalf("the page lacks %q behind what comes before it:\n%s", want, text.String())
		}
		rest = after
	}
}

// A pod that was not asked to go, that was late, or that did not end by itself is a fault.
func TestPodsThatGoBadlyAreFaults(t *testing.T) {
	t.Parallel()
	ended := func(code int) (p pod) {
		p.Metadata.Name, p.Metadata.Labels = "edge-1", map[string]string{"app.kubernetes.io/component": "edge"}
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, containerStatus{})
		p.Status.ContainerStatuses[0].State.Terminated = &struct{ ExitCode int }{code}
		return p
	}
	in := func(ago time.Duration) asked { return asked{at: time.Now().Add(-ago), grace: 46 * time.Second} }
	for _, c := range []struct {
		name  string
		pod   pod
		asked asked
		says  string
	}{
		{"well", ended(0), in(8 * time.Second), ""},
		{"unasked", ended(0), asked{}, "without having been asked"},
		{"late", ended(0), in(50 * time.Second), "with 46s of grace"},
		{"killed", ended(137), in(8 * time.Second), "ended with 137"},
	} {
		w := &watch{gone: map[string]int{}}
		w.deleted(c.pod, c.asked)
		if err := errors.Join(w.faults...); (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) || w.gone["edge"] != 1 {
			t.Errorf("%s: %v, and %v went; want a fault that says %q", c.name, err, w.gone, c.says)
		}
		if err := w.went(t.Context(), map[string]int{}, map[string]int{}); err == nil {
			t.Errorf("%s: an edge that should not have gone is no fault", c.name)
		}
	}
}

// A message that did not come, and a connection that just breaks, are noticed.
func TestTheCrowdNotices(t *testing.T) {
	t.Parallel()
	m := &member{had: map[string]map[uint64]bool{}}
	for _, seq := range []uint64{1, 2, 4} {
		if err := m.handle(t.Context(), &pushmesh.Delivery{Topic: "a", Seq: seq}); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.has(map[string]uint64{"a": 2}); err != nil {
		t.Error(err)
	}
	if m.has(map[string]uint64{"a": 4}) == nil || m.has(map[string]uint64{"b": 1}) == nil {
		t.Error("what is missing is not noticed")
	}
	c := &crowd{kills: map[string][]time.Time{}}
	c.ended("ann", &pushmesh.Error{Code: pushmesh.CodeDraining})
	if c.away != 1 || len(c.faults) != 0 {
		t.Errorf("GoAway: %d, and %v", c.away, c.faults)
	}
	c.ended("ann", errors.New("reset"))
	if c.away != 1 || len(c.faults) != 1 {
		t.Errorf("a broken connection: %d, and %v", c.away, c.faults)
	}
	c.killed("edge-1")
	c.ended("ann", errors.New("reset"))
	if len(c.faults) != 1 {
		t.Errorf("a killed edge: %v", c.faults)
	}
}
