package claimclient

import (
	"fmt"
	"slices"
	"testing"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// lists has a store list three places of every hundredth shard of its own, two a time.
func (s *store) lists(first, last int) {
	s.list = func(req *meshv1.StoreServiceListClaimsRequest) (*meshv1.StoreServiceListClaimsResponse, error) {
		shard := int(req.GetShard())
		if shard < first || shard > last {
			return nil, code.New(wirev1.Code_CODE_CONFLICT, "another's")
		}
		resp := &meshv1.StoreServiceListClaimsResponse{}
		for ; shard <= last; shard++ {
			if shard%100 != 0 {
				continue
			}
			from := 0
			if len(req.GetAfter()) > 0 && shard == int(req.GetShard()) {
				from = int(req.GetAfter()[0])
			}
			for i := from; i < 3; i++ {
				if len(resp.GetPlaces()) == 2 || len(resp.GetPlaces()) == int(req.GetLimit()) {
					resp.NextShard, resp.After = uint32(shard), []byte{byte(i)}
					return resp, nil
				}
				resp.Places = append(resp.Places, &pushmeshv1.ClaimPlace{Resource: fmt.Sprint(req.GetPrefix(), shard), Owner: fmt.Sprint(i)})
			}
		}
		resp.NextShard = uint32(last + 1)
		return resp, nil
	}
}

func TestListGoesOverShardsAndStores(t *testing.T) {
	a, b := newStore(t), newStore(t)
	a.own(0, 511, shards(512, last, b.addr))
	b.own(512, last, shards(0, 511, a.addr))
	a.lists(0, 511)
	b.lists(512, last)
	n := newNode(t, Config{}, a)
	n.knows(t, last, b.addr)
	var want []string
	for shard := 0; shard < topic.Shards; shard += 100 {
		for i := range 3 {
			want = append(want, fmt.Sprint("p", shard, " ", i))
		}
	}
	for _, limit := range []uint32{1, 4, 0, 5000} {
		var got []string
		req := &pushmeshv1.ClaimServiceListRequest{Prefix: "p", Limit: limit}
		for pages := 0; ; pages++ {
			resp, err := n.List(t.Context(), req)
			if err != nil || pages > 100 || limit > 0 && len(resp.GetPlaces()) > int(limit) {
				t.Fatal(resp, err)
			}
			for _, p := range resp.GetPlaces() {
				got = append(got, p.GetResource()+" "+p.GetOwner())
			}
			if req.PageToken = resp.GetNextPageToken(); req.GetPageToken() == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: got %q", limit, got)
		}
	}
}

func TestListOneResource(t *testing.T) {
	s := newStore(t)
	n := newNode(t, Config{}, s)
	s.set(func() {
		s.list = func(req *meshv1.StoreServiceListClaimsRequest) (*meshv1.StoreServiceListClaimsResponse, error) {
			resp := &meshv1.StoreServiceListClaimsResponse{Places: []*pushmeshv1.ClaimPlace{{Resource: req.GetResource(), Owner: string(req.GetAfter())}}}
			if len(req.GetAfter()) < 2 {
				resp.After = append(req.GetAfter(), 1)
			}
			return resp, nil
		}
	})
	resp, err := n.List(t.Context(), &pushmeshv1.ClaimServiceListRequest{Resource: "r"})
	if err != nil || len(resp.GetPlaces()) != 3 || resp.GetNextPageToken() != "" || resp.GetPlaces()[2].GetOwner() != "\x01\x01" {
		t.Fatal(resp, err)
	}
	first, err := n.List(t.Context(), &pushmeshv1.ClaimServiceListRequest{Resource: "r", Limit: 1})
	if err != nil || first.GetNextPageToken() == "" {
		t.Fatal(first, err)
	}
	rest, err := n.List(t.Context(), &pushmeshv1.ClaimServiceListRequest{Resource: "r", PageToken: first.GetNextPageToken()})
	if err != nil || len(rest.GetPlaces()) != 2 || rest.GetPlaces()[0].GetOwner() != "\x01" {
		t.Fatal(rest, err)
	}
}

func TestListRefuses(t *testing.T) {
	s := newStore(t)
	n := newNode(t, Config{}, s)
	if _, err := n.List(t.Context(), &pushmeshv1.ClaimServiceListRequest{PageToken: "$"}); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
		t.Errorf("got %v", err)
	}
	s.set(func() {
		s.list = func(*meshv1.StoreServiceListClaimsRequest) (*meshv1.StoreServiceListClaimsResponse, error) {
			return &meshv1.StoreServiceListClaimsResponse{}, nil
		}
	})
	if _, err := n.List(t.Context(), &pushmeshv1.ClaimServiceListRequest{}); code.Of(err) != wirev1.Code_CODE_INTERNAL {
		t.Errorf("a list that does not get on: %v", err)
	}
	s.lists(5, 6)
	if _, err := n.List(t.Context(), &pushmeshv1.ClaimServiceListRequest{}); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
		t.Errorf("nobody's shard: %v", err)
	}
}
