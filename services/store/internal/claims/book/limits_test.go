package book

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// What is there stays, and can be asked for, when there is no room for more.
func TestNoRoomForMore(t *testing.T) {
	d := newDesk(t)
	d.b = New(Config{Rules: func(string) *policy.Claims { return &d.rules }, Places: 2, Watches: 1})
	d.load(shardOf("r"))
	a := d.is(d.do(acquire, "a"), isGranted)
	d.is(d.do(acquire, "b"), isQueued)
	full := d.do(acquire, "c")
	d.refused(full, wirev1.Code_CODE_OVERLOADED)
	if full.RetryAfter <= 0 {
		t.Errorf("no time to come back: %+v", full)
	}
	d.is(d.do(acquire, "a"), isGranted)
	d.is(d.do(watch_, "b", conn(1)), isQueued)
	other := conn(2)
	d.refused(d.do(watch_, "", func(op *Op) {
		if other(op); true {
			op.Node = "edge:2"
		}
	}), wirev1.Code_CODE_OVERLOADED)
	d.is(d.do(release, "a", token(a.Token)), isReleased)
	d.is(d.do(acquire, "c"), isQueued)
}

func TestTheLineIsBounded(t *testing.T) {
	d := newDesk(t, func(c *policy.Claims) { c.MaxWaiting = 1 })
	d.is(d.do(acquire, "a"), isGranted)
	d.is(d.do(acquire, "b"), isQueued)
	d.refused(d.do(acquire, "c"), wirev1.Code_CODE_OVERLOADED)
	d.is(d.do(acquire, "c", func(op *Op) { op.NoWait = true }), isHeld)
	d.is(d.do(acquire, "b"), isQueued)
}

// A shard without numbers gives no token twice: it waits to be taken again.
func TestNumbersRunOut(t *testing.T) {
	d := newDesk(t)
	d.next = 1e6
	n := shardOf("r")
	d.b.Load(d.now, backend.ClaimShard{Shard: n, Next: d.next}, slices.Values([]backend.ClaimPlace(nil)))
	s := d.b.shards[n]
	s.next = s.most - 3
	if low := d.b.Low(1 << 20); !slices.Equal(low, []int{n}) {
		t.Errorf("low on numbers: %v", low)
	}
	a := d.is(d.do(acquire, "a"), isGranted) // two numbers
	d.refused(d.do(acquire, "b"), wirev1.Code_CODE_UNAVAILABLE)
	d.is(d.do(release, "a", token(a.Token)), isReleased)
	d.refused(d.do(acquire, "b"), wirev1.Code_CODE_UNAVAILABLE)
	d.next = s.most
	d.load(n)
	if b := d.is(d.do(acquire, "b"), isGranted); b.Token <= a.Token || len(d.b.Low(1<<20)) != 0 {
		t.Errorf("token %d after %d", b.Token, a.Token)
	}
}

func TestNonsenseIsRefused(t *testing.T) {
	d := newDesk(t)
	d.is(d.do(acquire, "holder"), isGranted)
	for name, op := range map[string]func(*Op){
		"no owner":        func(op *Op) { op.Owner = "" },
		"a long owner":    func(op *Op) { op.Owner = strings.Repeat("x", 256) },
		"no resource":     func(op *Op) { op.Resource = "" },
		"a long resource": func(op *Op) { op.Resource = strings.Repeat("x", 256) },
		"a short ttl":     func(op *Op) { op.TtlMs = 999 },
		"a long ttl":      func(op *Op) { op.TtlMs = 3_600_001 },
		"a priority":      func(op *Op) { op.Priority = 10 },
		"no kind":         func(op *Op) { op.Kind = 99 },
		"no token":        func(op *Op) { op.Kind = release },
	} {
		op1 := d.do(acquire, "x", func(o *Op) {
			op(o)
			if o.Resource != "r" { // shards are told apart by the lane
				d.load(shardOf(o.Resource))
			}
		})
		if op1.Code != wirev1.Code_CODE_INVALID_ARGUMENT || op1.Error == "" {
			t.Errorf("%s: %v %q %v", name, op1.Code, op1.Error, op1.State)
		}
	}
	if got := fmt.Sprint(d.b.Stats().Places); got != "1" {
		t.Errorf("%s places", got)
	}
}
