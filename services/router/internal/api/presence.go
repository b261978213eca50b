package api

import (
	"context"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/interest"
	"github.com/pushmesh/pushmesh/services/router/internal/presencewatch"
)

const maxCountTopics = 1000

// Presence is pushmesh.v1.PresenceService.
type Presence struct {
	pushmeshv1.UnimplementedPresenceServiceServer
	edges    KnownEdges
	via      Requester
	policies func() *policy.Table
	watches  *presencewatch.Watches
}

// NewPresence makes the service.
func NewPresence(edges KnownEdges, via Requester, policies func() *policy.Table, w *presencewatch.Watches) *Presence {
	return &Presence{edges: edges, via: via, policies: policies, watches: w}
}

// Drain ends every Watch.
func (p *Presence) Drain() { p.watches.Drain() }

// Count implements PresenceService.
func (p *Presence) Count(ctx context.Context, req *pushmeshv1.CountRequest) (*pushmeshv1.CountResponse, error) {
	topics := req.GetTopics()
	if err := checkTopics(topics, maxCountTopics); err != nil {
		return nil, err
	}
	places := map[interest.Edge][]int{}
	requests := map[interest.Edge]*meshv1.EdgeRequest{}
	for i, t := range topics {
		for _, e := range p.edges.Interested(nil, t) {
			if requests[e] == nil {
				requests[e] = &meshv1.EdgeRequest{Request: &meshv1.EdgeRequest_Count{Count: &meshv1.CountSubscribers{}}}
			}
			requests[e].GetCount().Topics = append(requests[e].GetCount().Topics, t)
			places[e] = append(places[e], i)
		}
	}
	resp := &pushmeshv1.CountResponse{Counts: make([]uint64, len(topics))}
	resp.SilentEdges = askEdges(ctx, p.via, requests, func(e interest.Edge, reply *meshv1.EdgeReply) {
		for k, n := range reply.GetCounts() {
			if k < len(places[e]) {
				resp.Counts[places[e][k]] += n
			}
		}
	})
	return resp, nil
}

func checkTopics(topics []string, most int) error {
	if len(topics) > most {
		return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, fmt.Sprintf("%d topics, at most %d", len(topics), most))
	}
	for _, t := range topics {
		if err := topic.Check(t); err != nil {
			return code.New(wirev1.Code_CODE_BAD_TOPIC, fmt.Sprintf("%q: %v", t, err))
		}
	}
	return nil
}

// known is a refusal while this router may not know every edge.
func (p *Presence) known() error {
	if err := p.edges.Check(); err != nil {
		return code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, "this router may not know every edge: "+err.Error())
	}
	return nil
}

// membersOfResponse is how many members or changes one message of a Watch carries: well below 4
// MiB, which gRPC clients take by default.
const membersOfResponse = 1000

// Watch implements PresenceService.
func (p *Presence) Watch(req *pushmeshv1.PresenceServiceWatchRequest, to pushmeshv1.PresenceService_WatchServer) error {
	if err := topic.CheckFilter(req.GetFilter()); err != nil {
		return code.New(wirev1.Code_CODE_BAD_TOPIC, err.Error())
	}
	snapshot, stream, err := p.watches.Open(to.Context(), req.GetFilter())
	if err != nil {
		return code.From(err)
	}
	defer stream.Close()
	for last := false; !last; {
		part := &pushmeshv1.PresenceServiceWatchResponse_Snapshot{Version: snapshot.Version, SilentEdges: snapshot.Silent}
		part.Members, last = snapshot.Take(membersOfResponse)
		part.Last = last
		if err := to.Send(&pushmeshv1.PresenceServiceWatchResponse{Snapshot: part}); err != nil {
			return err
		}
	}
	for {
		changes, err := stream.Next(to.Context())
		if err != nil {
			return code.From(err)
		}
		for len(changes) > 0 {
			n := min(len(changes), membersOfResponse)
			if err := to.Send(&pushmeshv1.PresenceServiceWatchResponse{Changes: changes[:n]}); err != nil {
				return err
			}
			changes = changes[n:]
		}
	}
}
