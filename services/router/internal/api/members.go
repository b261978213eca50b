package api

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/interest"
	"github.com/pushmesh/pushmesh/services/router/internal/presencewatch"
)

const (
	defaultMembers = 100
	maxMembers     = 1000
	// edgesAtATime is how many edges are asked for a page together: mostly the first one fills it.
	edgesAtATime = 8
)

// place in the order of members: behind this connection of this edge.
type place struct {
	edge  string
	after uint64
}

func (p place) token() string {
	return base64.RawURLEncoding.EncodeToString(append(binary.BigEndian.AppendUint64(nil, p.after), p.edge...))
}

func placeOf(token string) (p place, err error) {
	if token == "" {
		return p, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) <= 8 || bus.CheckID(string(raw[8:])) != nil {
		return p, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "page_token is not one that an earlier answer had")
	}
	return place{edge: string(raw[8:]), after: binary.BigEndian.Uint64(raw)}, nil
}

// List implements PresenceService.
func (p *Presence) List(ctx context.Context, req *pushmeshv1.PresenceServiceListRequest) (*pushmeshv1.PresenceServiceListResponse, error) {
	name := req.GetTopic()
	if err := topic.Check(name); err != nil {
		return nil, code.New(wirev1.Code_CODE_BAD_TOPIC, err.Error())
	}
	if req.GetLimit() > maxMembers {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, fmt.Sprintf("limit is at most %d", maxMembers))
	}
	at, err := placeOf(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	pol := p.policies().For(name)
	if pol.Refusal != nil {
		return nil, pol.Refusal
	}
	if !pol.Presence {
		return nil, code.New(wirev1.Code_CODE_CONFLICT, policy.NoPresence(pol, name))
	}
	if err := p.known(); err != nil {
		return nil, err
	}
	edges := slices.DeleteFunc(p.edges.Interested(nil, name), func(e interest.Edge) bool { return e.ID < at.edge })
	slices.SortFunc(edges, func(a, b interest.Edge) int { return cmp.Compare(a.ID, b.ID) })
	l := &listing{p: p, topic: name, limit: cmp.Or(int(req.GetLimit()), defaultMembers), resp: &pushmeshv1.PresenceServiceListResponse{}}
	for ; len(edges) > 0 && len(l.resp.GetMembers()) < l.limit; edges = edges[min(len(edges), edgesAtATime):] {
		l.ask(ctx, at, edges)
	}
	return l.resp, nil
}

// listing is one page in the making.
type listing struct {
	p     *Presence
	topic string
	limit int
	resp  *pushmeshv1.PresenceServiceListResponse
}

// ask asks the first of those edges that are left, and takes what they answer in their order, until
// the page is full.
func (l *listing) ask(ctx context.Context, at place, left []interest.Edge) {
	edges := left[:min(len(left), edgesAtATime)]
	requests, pages := map[interest.Edge]*meshv1.EdgeRequest{}, map[interest.Edge]*meshv1.MemberPage{}
	for _, e := range edges {
		list := &meshv1.ListMembers{Topic: l.topic, Limit: uint32(l.limit - len(l.resp.GetMembers()))}
		if e.ID == at.edge {
			list.After = at.after
		}
		requests[e] = &meshv1.EdgeRequest{Request: &meshv1.EdgeRequest_ListMembers{ListMembers: list}}
	}
	askEdges(ctx, l.p.via, requests, func(e interest.Edge, reply *meshv1.EdgeReply) { pages[e] = reply.GetMembers() })
	for i, e := range edges {
		page := pages[e]
		if page == nil {
			l.resp.SilentEdges++
			continue
		}
		members := page.GetMembers()[:min(len(page.GetMembers()), l.limit-len(l.resp.GetMembers()))]
		for _, m := range members {
			l.resp.Members = append(l.resp.Members, presencewatch.Public(l.topic, e.ID, m))
		}
		if len(l.resp.GetMembers()) < l.limit {
			continue
		}
		if page.GetMore() || len(members) < len(page.GetMembers()) || i+1 < len(left) {
			last := l.resp.GetMembers()[l.limit-1]
			l.resp.NextPageToken = place{last.GetEdge(), last.GetConnectionId()}.token()
		}
		return
	}
}
