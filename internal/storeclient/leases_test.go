package storeclient

import (
	"context"
	"fmt"
	"testing"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func (f *fake) RenewLeases(ctx context.Context, req *meshv1.RenewLeasesRequest) (*meshv1.RenewLeasesResponse, error) {
	resp := &meshv1.RenewLeasesResponse{}
	for _, l := range req.GetLeases() {
		resp.Codes = append(resp.Codes, code.Of(f.enter(ctx, topic.SessionShard(l.GetUser(), l.GetName()))))
	}
	return resp, nil
}

func TestEachLeaseIsRenewedByItsOwner(t *testing.T) {
	c, a, b := pair(t)
	req := &meshv1.RenewLeasesRequest{EdgeId: "e", LeaseMs: 1000}
	for i := range 2500 {
		req.Leases = append(req.Leases, &meshv1.RenewLeasesRequest_Lease{User: "u", Name: fmt.Sprint(i)})
	}
	for i, got := range c.RenewLeases(t.Context(), req).GetCodes() {
		if got != wirev1.Code_CODE_OK {
			t.Fatalf("lease %d: %v", i, got)
		}
	}
	if both := a.count(func(f *fake) int { return f.calls }) + b.count(func(f *fake) int { return f.calls }); both != len(req.GetLeases()) {
		t.Errorf("%d leases were renewed, want %d", both, len(req.GetLeases()))
	}
	// What an owner refuses because it is none, or can't be reached, is to be tried again.
	b.own(1, 0)
	a.set(func(f *fake) { f.broken = code.New(wirev1.Code_CODE_SESSION_TAKEN_OVER, "taken") })
	for i, got := range c.RenewLeases(t.Context(), req).GetCodes() {
		want := wirev1.Code_CODE_UNAVAILABLE
		if low(topic.SessionShard("u", req.GetLeases()[i].GetName())) {
			want = wirev1.Code_CODE_SESSION_TAKEN_OVER
		}
		if got != want {
			t.Fatalf("lease %d: %v, want %v", i, got, want)
		}
	}
}
