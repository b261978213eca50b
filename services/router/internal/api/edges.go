// Package api serves the gRPC services that look at the mesh and change it: history, sessions,
// namespaces, presence, ranking.
package api

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/router/internal/interest"
)

// Edges says which edges there are (switchboard.Switchboard).
type Edges interface {
	Edges() []interest.Edge
	Interested(dst []interest.Edge, topic string) []interest.Edge
}

// Requester asks over NATS (bus.Bus).
type Requester interface {
	Request(ctx context.Context, subject string, data []byte) ([]byte, error)
}

// askTimeout is how long an edge has to answer.
const askTimeout = 500 * time.Millisecond

// askEdges asks each edge what request says for it, all at once. It hands the answers to take, one
// at a time, and returns how many did not answer in time.
func askEdges(ctx context.Context, via Requester, requests map[interest.Edge]*meshv1.EdgeRequest, take func(interest.Edge, *meshv1.EdgeReply)) (silent uint32) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var (
		mu sync.Mutex
		wg sync.WaitGroup
	)
	for e, req := range requests {
		wg.Go(func() {
			reply, err := askEdge(ctx, via, e.ID, req)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				silent++
				return
			}
			take(e, reply)
		})
	}
	wg.Wait()
	return silent
}

func askEdge(ctx context.Context, via Requester, edge string, req *meshv1.EdgeRequest) (*meshv1.EdgeReply, error) {
	data, err := proto.Marshal(req)
	if err != nil {
		return nil, err
	}
	answer, err := via.Request(ctx, bus.EdgeRequest(edge), data)
	if err != nil {
		return nil, err
	}
	reply := &meshv1.EdgeReply{}
	return reply, proto.Unmarshal(answer, reply)
}
