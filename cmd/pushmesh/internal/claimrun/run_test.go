package claimrun

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/leaks"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

// api is a router whose stores go away after the first renewals.
type api struct {
	pushmeshv1.ClaimServiceClient

	mu       sync.Mutex
	ttl      time.Duration
	good     int // renewals before the stores are away
	ends     time.Time
	renewed  int
	released bool
}

func (a *api) grant() *wirev1.ClaimState {
	a.ends = time.Now().Add(a.ttl)
	return &wirev1.ClaimState{Resource: "r", State: wirev1.ClaimState_STATE_GRANTED, Token: 3, ExpiresInMs: uint32(a.ttl.Milliseconds())}
}

func (a *api) Acquire(context.Context, *pushmeshv1.AcquireRequest, ...grpc.CallOption) (*pushmeshv1.AcquireResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return &pushmeshv1.AcquireResponse{State: a.grant()}, nil
}

func (a *api) Renew(context.Context, *pushmeshv1.RenewRequest, ...grpc.CallOption) (*pushmeshv1.RenewResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.renewed++; a.renewed > a.good {
		return nil, code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Millisecond, "away")
	}
	return &pushmeshv1.RenewResponse{State: a.grant()}, nil
}

func (a *api) Release(context.Context, *pushmeshv1.ReleaseRequest, ...grpc.CallOption) (*pushmeshv1.ReleaseResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.released = true
	return &pushmeshv1.ReleaseResponse{}, nil
}

func (a *api) Watch(context.Context, *pushmeshv1.WatchRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[pushmeshv1.WatchResponse], error) {
	return nil, code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, "away")
}

func runWith(t *testing.T, a *api, script string, killAfter time.Duration) (exit int, out string, ended time.Time, lost error) {
	t.Helper()
	c := &Claim{API: a, Resource: "r", Owner: "o"}
	h, err := c.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	cmd := exec.Command("sh", "-c", script)
	cmd.Stdout = &text
	exit, lost, err = c.Run(t.Context(), h, cmd, killAfter)
	if err != nil {
		t.Fatal(err)
	}
	if !a.released {
		t.Error("it was not released")
	}
	return exit, text.String(), time.Now(), lost
}

// A claim that can't be renewed has the command stopped before the hold ends: by SIGTERM, and by
// SIGKILL where that does not help. A machine that stands still makes it late: the best of some
// rounds counts.
func TestCommandIsStoppedBeforeTheHoldEnds(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		exit   int
	}{
		"it obeys":      {"trap 'exit 7' TERM; sleep 1000 & wait", 7},
		"it does not":   {"trap '' TERM; while :; do sleep 1000; done", 128 + 9},
		"it has others": {"sh -c \"trap '' TERM; while :; do sleep 1000; done\" & trap 'exit 7' TERM; wait", 7},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for round := 1; ; round++ {
				a := &api{ttl: 900 * time.Millisecond, good: 1}
				exit, _, ended, lost := runWith(t, a, c.script, time.Minute)
				if exit != c.exit || lost == nil || !strings.Contains(lost.Error(), "in time") {
					t.Fatalf("exit %d, lost %v", exit, lost)
				}
				if a.renewed < 2 {
					t.Errorf("renewed %d times", a.renewed)
				}
				if ended.Before(a.ends) {
					return
				}
				if round == 10 {
					t.Fatalf("%v after the end of the hold", ended.Sub(a.ends))
				}
			}
		})
	}
}

// A hold lasts as long as the command does, over many times its TTL.
func TestHoldIsRenewed(t *testing.T) {
	t.Parallel()
	for round := 1; ; round++ { // a machine that stands still for a TTL loses it
		a := &api{ttl: 600 * time.Millisecond, good: 1000}
		exit, out, _, lost := runWith(t, a, "sleep 1.5; echo $PUSHMESH_CLAIM_TOKEN", time.Minute)
		if exit == 0 && lost == nil && out == "3\n" && a.renewed >= 3 {
			return
		}
		if round == 10 {
			t.Fatalf("exit %d, lost %v, out %q, renewed %d times", exit, lost, out, a.renewed)
		}
	}
}
