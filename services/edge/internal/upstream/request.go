package upstream

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// requestTimeout bounds how long loops have to answer; who asked waits about as long.
const requestTimeout = 450 * time.Millisecond

// requestsAtATime bounds the requests being answered; beyond it they are dropped, and whoever asked
// gives up by its own time.
const requestsAtATime = 64

// request answers a router or another edge. It runs in the goroutine of the NATS subscription.
func (m *Mesh) request(data []byte, respond func([]byte) error) {
	req := &meshv1.EdgeRequest{}
	if err := proto.Unmarshal(data, req); err != nil {
		m.stats.BadFrames.Add(1)
		return
	}
	if lease := req.GetPresenceLease(); lease != nil {
		m.lease(lease)
		return
	}
	if room := req.GetRoomFrame(); room != nil {
		if m.cfg.Rooms != nil {
			m.cfg.Rooms(room)
		}
		return
	}
	if m.stats.requests.Add(1) > requestsAtATime {
		m.stats.requests.Add(-1)
		m.stats.RefusedRequests.Add(1)
		return
	}
	m.group.Go("edge-mesh-request", func(ctx context.Context) {
		defer m.stats.requests.Add(-1)
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		answer, err := m.reply(ctx, req)
		var reply []byte
		if err == nil {
			reply, err = proto.Marshal(answer)
		}
		if err == nil {
			err = respond(reply)
		}
		if err != nil {
			m.cfg.Log.Debug("request not answered", "error", err)
		}
	})
}

// reply is an error where who asked is better told nothing.
func (m *Mesh) reply(ctx context.Context, req *meshv1.EdgeRequest) (*meshv1.EdgeReply, error) {
	switch r := req.GetRequest().(type) {
	case *meshv1.EdgeRequest_Count:
		return &meshv1.EdgeReply{Counts: m.loops.count(ctx, r.Count.GetTopics())}, nil
	case *meshv1.EdgeRequest_Yield:
		if g := r.Yield.GetGeneration(); g > 0 {
			m.sessions.Over(r.Yield.GetUser(), r.Yield.GetName(), g, r.Yield.GetCode())
			return &meshv1.EdgeReply{Yielded: true}, nil
		}
		return &meshv1.EdgeReply{Yielded: m.sessions.Yield(ctx, r.Yield.GetUser(), r.Yield.GetName())}, nil
	case *meshv1.EdgeRequest_Disconnect:
		return &meshv1.EdgeReply{Disconnected: uint32(m.loops.disconnect(ctx, r.Disconnect))}, nil
	case *meshv1.EdgeRequest_Profile:
		return &meshv1.EdgeReply{Profiled: uint32(m.loops.setProfile(ctx, r.Profile))}, nil
	case *meshv1.EdgeRequest_Rebalance:
		return &meshv1.EdgeReply{Leaving: uint64(m.loops.rebalance(ctx, r.Rebalance, m.Others))}, nil
	case *meshv1.EdgeRequest_SessionQueue:
		return m.sessionQueue(ctx, r.SessionQueue)
	case *meshv1.EdgeRequest_Ticket:
		return m.ticket(r.Ticket.GetRouterId()), nil
	case *meshv1.EdgeRequest_ListMembers:
		page, err := m.loops.listMembers(ctx, r.ListMembers)
		return &meshv1.EdgeReply{Members: page}, err
	}
	return &meshv1.EdgeReply{}, nil
}

func (m *Mesh) ticket(router string) *meshv1.EdgeReply {
	if m.cfg.Ticket == nil || bus.CheckID(router) != nil {
		return &meshv1.EdgeReply{}
	}
	ticket, address := m.cfg.Ticket(router)
	return &meshv1.EdgeReply{Ticket: ticket, Address: address, Tls: m.cfg.TLS}
}

// sessionQueue is an error where no connection here holds the session.
func (m *Mesh) sessionQueue(ctx context.Context, q *meshv1.SessionQueue) (*meshv1.EdgeReply, error) {
	conn, held := m.sessions.Holder(ctx, q.GetUser(), q.GetName())
	if !held {
		return nil, code.New(wirev1.Code_CODE_NOT_FOUND, "the session is not attached on this edge")
	}
	depth := make(chan *meshv1.QueueDepth, 1)
	m.Post(conn.Loop, exchange.Depth{Conn: conn, Reply: func(messages, bytes int) {
		depth <- &meshv1.QueueDepth{Messages: uint64(messages), Bytes: uint64(bytes)}
	}})
	select {
	case d := <-depth:
		return &meshv1.EdgeReply{Queue: d}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// askToYield asks another edge to give up a session.
func (m *Mesh) askToYield(ctx context.Context, edge, user, name string) bool {
	yielded, _ := m.yield(ctx, edge, &meshv1.YieldSession{User: user, Name: name})
	return yielded
}

// notifyTakeover tells another edge that holds of a session under older generations are over. An
// edge that is not there needs to be told no more.
func (m *Mesh) notifyTakeover(ctx context.Context, edge, user, name string, generation uint64) (told bool) {
	if bus.CheckID(edge) != nil {
		return true
	}
	_, err := m.yield(ctx, edge, &meshv1.YieldSession{User: user, Name: name, Generation: generation})
	return err == nil || errors.Is(err, bus.ErrNobody)
}

func (m *Mesh) yield(ctx context.Context, edge string, y *meshv1.YieldSession) (yielded bool, err error) {
	if err := bus.CheckID(edge); err != nil {
		return false, err
	}
	req, err := proto.Marshal(&meshv1.EdgeRequest{Request: &meshv1.EdgeRequest_Yield{Yield: y}})
	if err != nil {
		return false, err
	}
	data, err := m.cfg.Bus.Request(ctx, bus.EdgeRequest(edge), req)
	if err != nil {
		return false, err
	}
	reply := &meshv1.EdgeReply{}
	err = proto.Unmarshal(data, reply)
	return err == nil && reply.GetYielded(), err
}
