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

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/procmesh"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// doing is what claim.py says after each thing it did.
type doing struct {
	Did      string
	Token    uint64
	Position int
	Held     bool
	Lost     *int
	State    int
}

// claimer is a running claim.py.
type claimer struct {
	t     *testing.T
	lines *bufio.Scanner
	in    io.WriteCloser
	err   strings.Builder
	wait  func() error
}

func claim(t *testing.T, addr, id string) (*claimer, doing) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "python3", "claim.py", addr, id, "seat/1")
	c := &claimer{t: t, wait: cmd.Wait}
	cmd.Stderr = &c.err
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if c.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.lines = bufio.NewScanner(out)
	return c, c.did("acquire")
}

func (c *claimer) tell(what string) {
	c.t.Helper()
	if _, err := fmt.Fprintln(c.in, what); err != nil {
		c.t.Fatal(err)
	}
}

func (c *claimer) did(want string) doing {
	c.t.Helper()
	if !c.lines.Scan() {
		err := c.wait()
		c.t.Fatalf("the client ended: %v %v\n%s", err, c.lines.Err(), c.err.String())
	}
	var d doing
	if err := json.Unmarshal(c.lines.Bytes(), &d); err != nil || d.Did != want || d.Lost != nil {
		c.t.Fatalf("%s: %v, want %s", c.lines.Text(), err, want)
	}
	return d
}

func (c *claimer) do(what string) doing {
	c.t.Helper()
	c.tell(what)
	return c.did(what)
}

func (c *claimer) end() {
	c.t.Helper()
	if err := c.in.Close(); err != nil {
		c.t.Fatal(err)
	}
	if err := c.wait(); err != nil {
		c.t.Fatalf("%v\n%s", err, c.err.String())
	}
}

// Two clients, of which one waits for the other, comes back to its place in the line, and takes its
// turn up.
func TestPythonClientsClaim(t *testing.T) {
	m := harness.Start(t, harness.Options{})
	long := durationpb.New(patience)
	_, err := pushmeshv1.NewNamespaceServiceClient(m.Router(t)).Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{Namespace: &pushmeshv1.Namespace{
		Prefix: "seat", Policy: &pushmeshv1.Policy{Claims: &pushmeshv1.ClaimPolicy{Clients: true, Ttl: long, MaxTtl: long, OfferTtl: long, Grace: long}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	probe, _ := wireclient.Connect(t, m.EdgeAddr(), &wirev1.Hello{})
	id := uint32(0)
	procmesh.Await(t, "clients may claim", func() bool {
		id++
		probe.Send(wirev1.FrameType_FRAME_TYPE_CLAIM, &wirev1.Claim{Id: id, Resource: "seat/1", Op: wirev1.Claim_OP_CHECK})
		ft, _, err := probe.Next(wireclient.Patience)
		if err != nil {
			t.Fatal(err)
		}
		return ft == wirev1.FrameType_FRAME_TYPE_CLAIM_STATE
	})

	a, first := claim(t, m.EdgeAddr(), "a")
	b, waits := claim(t, m.EdgeAddr(), "b")
	if first.Token == 0 || !first.Held || waits.Token != 0 || waits.Held || waits.Position != 1 {
		t.Fatalf("%+v, %+v", first, waits)
	}
	if d := a.do("break"); d.Token != first.Token || !d.Held {
		t.Fatalf("came back as %+v, was %+v", d, first)
	}
	if d := b.do("break"); d.Position != 1 || d.Token != 0 {
		t.Fatalf("came back as %+v", d)
	}
	b.tell("wait")
	if d := a.do("release"); d.State != int(wirev1.ClaimState_STATE_RELEASED) || d.Held {
		t.Fatalf("%+v", d)
	}
	next := b.did("wait")
	if next.Token <= first.Token || !next.Held {
		t.Fatalf("%+v after %+v", next, first)
	}
	if d := b.do("renew"); d.Token != next.Token || !d.Held {
		t.Fatalf("%+v", d)
	}
	if d := a.do("check"); d.State != int(wirev1.ClaimState_STATE_HELD_BY_OTHER) {
		t.Fatalf("%+v", d)
	}
	a.end()
	b.end()
}
