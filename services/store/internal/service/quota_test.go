package service

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// Each bound has its answer, which names the flag, and is counted; other errors stay what they are.
func TestRefusalsNameTheirBound(t *testing.T) {
	q := newQuotas(Quotas{}, prometheus.NewRegistry())
	for _, x := range []struct {
		bound backend.Bound
		code  wirev1.Code
		flag  string
	}{
		{backend.BoundUser, wirev1.Code_CODE_TOO_MANY_SUBSCRIPTIONS, "--user-sessions"},
		{backend.BoundAddress, wirev1.Code_CODE_TOO_MANY_SUBSCRIPTIONS, "--address-sessions"},
		{backend.BoundAll, wirev1.Code_CODE_OVERLOADED, "--max-sessions"},
	} {
		got := code.From(q.refused(fmt.Errorf("attach: %w", &backend.TooManySessions{Bound: x.bound, Most: 17})))
		if got.Code != x.code || !strings.Contains(got.Message, x.flag) || !strings.Contains(got.Message, "17") {
			t.Errorf("%s: %v", x.bound, got)
		}
		if retry := got.RetryAfter; code.Retryable(x.code) != (retry >= fullPause) || retry >= 2*fullPause {
			t.Errorf("%s: back after %s", x.bound, retry)
		}
		if n := testutil.ToFloat64(q.refusals.WithLabelValues(string(x.bound))); n != 1 {
			t.Errorf("%s: %v were counted", x.bound, n)
		}
	}
	other := errors.New("away")
	if got := q.refused(other); !errors.Is(got, other) {
		t.Errorf("%v became %v", other, got)
	}
	if got := q.refused(nil); got != nil {
		t.Errorf("no error became %v", got)
	}
}

// A TTL above the bound is refused; one that nobody asked for is never above it.
func TestTTLIsBounded(t *testing.T) {
	for _, x := range []struct {
		most         time.Duration
		asked, given uint32
		refused      bool
	}{
		{366 * 24 * time.Hour, 0, 0, false},
		{366 * 24 * time.Hour, 366 * 24 * 3600, 366 * 24 * 3600, false},
		{366 * 24 * time.Hour, 366*24*3600 + 1, 0, true},
		{time.Hour, 0, 3600, false},
		{time.Hour, 60, 60, false},
		{time.Hour, 3601, 0, true},
	} {
		req := &meshv1.AttachSessionRequest{TtlS: x.asked}
		err := newQuotas(Quotas{TTL: x.most}, prometheus.NewRegistry()).ttl(req)
		if (code.Of(err) == wirev1.Code_CODE_INVALID_ARGUMENT) != x.refused || err == nil && req.GetTtlS() != x.given {
			t.Errorf("%d s where %s is the most: %d s, %v", x.asked, x.most, req.GetTtlS(), err)
		}
	}
}

// A group's position outlives its members by the default, whatever clients may ask for.
func TestGroupsKeepTheirTTL(t *testing.T) {
	req := &meshv1.AttachSessionRequest{User: backend.GroupUser, Name: "g", EdgeId: "e", LeaseMs: 10_000}
	if err := newQuotas(Quotas{TTL: time.Hour}, prometheus.NewRegistry()).ttl(req); err != nil || req.GetTtlS() != 0 {
		t.Errorf("a group's position is kept for %d s, %v", req.GetTtlS(), err)
	}
}
