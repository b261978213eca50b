package api

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// revocations are a store's, of which all but each 2,000th were restored.
type revocations struct {
	AccessStore
	all   int
	asked int
}

func (s *revocations) ListRevocations(_ context.Context, req *meshv1.StoreServiceListRevocationsRequest) (*meshv1.StoreServiceListRevocationsResponse, error) {
	s.asked++
	resp := &meshv1.StoreServiceListRevocationsResponse{Version: uint64(s.all)}
	for v := req.GetHaveVersion() + 1; v <= uint64(s.all); v++ {
		if uint32(len(resp.GetRevocations())) == req.GetLimit() {
			resp.Version, resp.More = v-1, true
			break
		}
		if v%2000 != 0 {
			resp.Restored = append(resp.Restored, uint32(len(resp.GetRevocations())))
		}
		resp.Revocations = append(resp.Revocations, &pushmeshv1.Revocation{User: fmt.Sprint("u", v), Version: v})
	}
	return resp, nil
}

// Very many that were restored, and are not told, do not cost a question each, however few are
// asked for.
func TestRevocationsAmongManyRestored(t *testing.T) {
	s := &revocations{all: 9000}
	a := NewAccess(s)
	for _, limit := range []uint32{1, 2, 3, 1000} {
		s.asked = 0
		var got []string
		for token, first := "", true; first || token != ""; first = false {
			resp, err := a.List(t.Context(), &pushmeshv1.AccessServiceListRequest{Limit: limit, PageToken: token})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range resp.GetRevocations() {
				got = append(got, r.GetUser())
			}
			if len(resp.GetRevocations()) > int(limit) {
				t.Errorf("%d of %d at a time", len(resp.GetRevocations()), limit)
			}
			token = resp.GetNextPageToken()
		}
		if want := []string{"u2000", "u4000", "u6000", "u8000"}; !slices.Equal(got, want) {
			t.Errorf("limit %d: %v, want %v", limit, got, want)
		}
		if s.asked > 20 {
			t.Errorf("limit %d: the store is asked %d times", limit, s.asked)
		}
	}
}
