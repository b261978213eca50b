package api

import (
	"context"
	"fmt"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/interest"
)

const maxCountTopics = 1000

// Presence is pushmesh.v1.PresenceService.
type Presence struct {
	pushmeshv1.UnimplementedPresenceServiceServer
	edges Edges
	via   Requester
}

// NewPresence makes the service.
func NewPresence(edges Edges, via Requester) *Presence { return &Presence{edges: edges, via: via} }

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
