package edgetest

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// claims are held for as long as nobody ends them: the store's resources have one holder, a line
// and no clock.
type claims struct {
	mu        sync.Mutex
	token     uint64
	resources map[string]*resource
}

type resource struct {
	places   []*place // the first one holds it
	watching map[*claimStream]bool
}

type place struct {
	owner string
	token uint64
	conn  uint64
	node  *claimStream
}

type claimStream struct {
	grpc.BidiStreamingServer[meshv1.StoreServiceClaimsRequest, meshv1.StoreServiceClaimsResponse]
}

// ClientClaims has clients claim what they like. It comes before any edge.
func (s *Store) ClientClaims() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.namespaces = []*pushmeshv1.Namespace{{Prefix: "seat", Policy: &pushmeshv1.Policy{Claims: &pushmeshv1.ClaimPolicy{Clients: true}}}}
}

// Claims serves one node.
func (s *Store) Claims(stream grpc.BidiStreamingServer[meshv1.StoreServiceClaimsRequest, meshv1.StoreServiceClaimsResponse]) error {
	node := &claimStream{BidiStreamingServer: stream}
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		s.claims.mu.Lock()
		for _, op := range req.GetOps() {
			if err == nil {
				err = s.claims.do(node, op)
			}
		}
		s.claims.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// Lose ends the hold of a resource, as time would.
func (s *Store) Lose(name string) {
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	r := s.claims.resources[name]
	r.places[0].push(&wirev1.ClaimState{Resource: name, State: wirev1.ClaimState_STATE_LOST, Token: r.places[0].token, Code: wirev1.Code_CODE_EXPIRED})
	s.claims.next(name, r)
}

// do answers, then tells others.
func (c *claims) do(node *claimStream, op *meshv1.ClaimOp) error {
	if c.resources == nil {
		c.resources = map[string]*resource{}
	}
	name := op.GetResource()
	r := c.resources[name]
	if r == nil {
		r = &resource{watching: map[*claimStream]bool{}}
		c.resources[name] = r
	}
	at := slices.IndexFunc(r.places, func(p *place) bool { return p.owner == op.GetOwner() })
	answer := &meshv1.ClaimResult{Ref: op.GetRef()}
	ended := false
	switch op.GetKind() {
	case meshv1.ClaimOp_KIND_ACQUIRE:
		if at < 0 {
			at = len(r.places)
			r.places = append(r.places, &place{owner: op.GetOwner()})
			if at == 0 {
				c.grant(r)
			}
		}
	case meshv1.ClaimOp_KIND_RENEW:
		if at != 0 || r.places[0].token != op.GetToken() {
			answer.Code = wirev1.Code_CODE_NOT_HELD
		}
	case meshv1.ClaimOp_KIND_RELEASE:
		ended = at == 0 && r.places[0].token == op.GetToken()
	case meshv1.ClaimOp_KIND_LEAVE:
		ended = at > 0
	case meshv1.ClaimOp_KIND_WATCH:
		r.watching[node] = true
	case meshv1.ClaimOp_KIND_UNWATCH:
		delete(r.watching, node)
	case meshv1.ClaimOp_KIND_UNTIE: // there is no grace
		ended = at >= 0 && r.places[at].conn == op.GetConn()
	case meshv1.ClaimOp_KIND_CHECK:
	}
	answer.State = c.state(name, r, at)
	if ended {
		answer.State = &wirev1.ClaimState{Resource: name, State: wirev1.ClaimState_STATE_RELEASED}
	} else if at >= 0 {
		r.places[at].conn, r.places[at].node = op.GetConn(), node
	}
	if err := node.Send(&meshv1.StoreServiceClaimsResponse{Results: []*meshv1.ClaimResult{answer}}); err != nil {
		return err
	}
	switch {
	case ended && at == 0:
		c.next(name, r)
	case ended:
		r.places = slices.Delete(r.places, at, at+1)
	}
	return nil
}

func (c *claims) grant(r *resource) {
	c.token++
	r.places[0].token = c.token
}

// next has it who waits longest.
func (c *claims) next(name string, r *resource) {
	r.places = r.places[1:]
	if len(r.places) > 0 {
		c.grant(r)
	}
	for i, p := range r.places {
		p.push(c.state(name, r, i))
	}
	for node := range r.watching { // its error is the stream's end
		_ = node.Send(&meshv1.StoreServiceClaimsResponse{Pushes: []*meshv1.ClaimPush{{State: c.state(name, r, -1)}}})
	}
}

func (p *place) push(st *wirev1.ClaimState) { // its error is the stream's end
	_ = p.node.Send(&meshv1.StoreServiceClaimsResponse{Pushes: []*meshv1.ClaimPush{{Conn: p.conn, Owner: p.owner, State: st}}})
}

func (c *claims) state(name string, r *resource, at int) *wirev1.ClaimState {
	st := &wirev1.ClaimState{Resource: name, State: wirev1.ClaimState_STATE_QUEUED, Position: uint32(max(at, 0))}
	switch {
	case at == 0:
		st.State, st.Token, st.ExpiresInMs = wirev1.ClaimState_STATE_GRANTED, r.places[0].token, 30_000
		st.ExpiresAt = uint64(time.Now().Add(30 * time.Second).UnixMicro())
	case at < 0 && len(r.places) == 0:
		st.State = wirev1.ClaimState_STATE_FREE
	case at < 0:
		st.State, st.Holder, st.Holding, st.Waiting = wirev1.ClaimState_STATE_HELD_BY_OTHER, r.places[0].owner, 1, uint32(len(r.places)-1)
	}
	return st
}
