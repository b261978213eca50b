package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func TestHistory(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	for i := range 20 {
		m.publish(t, &pushmeshv1.PublishRequest{Topic: "room/1", Payload: fmt.Append(nil, i), Headers: map[string]string{"n": fmt.Sprint(i)}})
	}
	history := pushmeshv1.NewHistoryServiceClient(m.conn)
	read := func(req *pushmeshv1.ReadRequest) ([]*pushmeshv1.StoredMessage, error) {
		stream, err := history.Read(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		var all []*pushmeshv1.StoredMessage
		for {
			resp, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return all, nil
			}
			if err != nil {
				return all, err
			}
			all = append(all, resp.GetMessages()...)
		}
	}
	all, err := read(&pushmeshv1.ReadRequest{Topic: "room/1", FromSeq: 5, Limit: 10})
	if err != nil || len(all) != 10 {
		t.Fatalf("%d messages, %v", len(all), err)
	}
	for i, msg := range all {
		if msg.GetSeq() != uint64(5+i) || string(msg.GetPayload()) != fmt.Sprint(4+i) || msg.GetHeaders()["n"] != fmt.Sprint(4+i) ||
			msg.GetEpoch() != fakeEpoch || len(msg.GetId()) != 16 || msg.GetTopic() != "room/1" {
			t.Fatalf("message %d: %v", i, msg)
		}
	}
	if all, err := read(&pushmeshv1.ReadRequest{Topic: "room/1"}); err != nil || len(all) != 20 {
		t.Errorf("everything: %d, %v", len(all), err)
	}
	if _, err := read(&pushmeshv1.ReadRequest{Topic: "room/1", Epoch: 7}); code.Of(err) != wirev1.Code_CODE_EPOCH_CHANGED {
		t.Errorf("another epoch: %v", err)
	}
	if _, err := read(&pushmeshv1.ReadRequest{Topic: "a/+"}); code.Of(err) != wirev1.Code_CODE_BAD_TOPIC {
		t.Errorf("wildcard: %v", err)
	}
	heads, err := history.Head(t.Context(), &pushmeshv1.HeadRequest{Topics: []string{"room/2", "room/1"}})
	if err != nil || len(heads.GetHeads()) != 2 || heads.GetHeads()[0].GetSeq() != 0 || heads.GetHeads()[1].GetSeq() != 20 {
		t.Errorf("heads: %v, %v", heads, err)
	}
}

func TestSessions(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	for range 5 {
		m.publish(t, &pushmeshv1.PublishRequest{Topic: "room/1"})
	}
	m.log.sessions["ann/phone"] = &pushmeshv1.Session{User: "ann", Name: "phone", Cursors: []*pushmeshv1.Cursor{{Topic: "room/1"}}}
	m.log.cursors = []*meshv1.SessionCursor{
		{Topic: "room/1", Epoch: fakeEpoch, Floor: 1, Acked: []uint64{3, 3, 5, 5}},
		{Topic: "room/2", Epoch: fakeEpoch},
		{Topic: "room/1", Epoch: 3, Floor: 9},
	}
	sessions := pushmeshv1.NewSessionServiceClient(m.conn)
	got, err := sessions.Get(t.Context(), &pushmeshv1.SessionServiceGetRequest{User: "ann", Name: "phone"})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []uint64{2, 0, 5} {
		if c := got.GetSession().GetCursors()[i]; c.GetLag() != want {
			t.Errorf("cursor %v, want lag %d", c, want)
		}
	}
	if _, err := sessions.Get(t.Context(), &pushmeshv1.SessionServiceGetRequest{User: "ann", Name: "tablet"}); code.Of(err) != wirev1.Code_CODE_NOT_FOUND {
		t.Errorf("no such session: %v", err)
	}
	list, err := sessions.List(t.Context(), &pushmeshv1.SessionServiceListRequest{User: "ann"})
	if err != nil || len(list.GetSessions()) != 1 {
		t.Errorf("list: %v, %v", list, err)
	}
	if _, err := sessions.List(t.Context(), &pushmeshv1.SessionServiceListRequest{Limit: 1001}); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
		t.Errorf("limit: %v", err)
	}
	if _, err := sessions.Delete(t.Context(), &pushmeshv1.SessionServiceDeleteRequest{User: "ann", Name: "phone"}); err != nil {
		t.Error(err)
	}
	if len(m.log.sessions) != 0 {
		t.Error("not deleted")
	}
}

// The edge that holds a session is told that it is deleted, and of which generations that is true.
func TestTheEdgeOfADeletedSessionIsTold(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	a := startEdge(t, m.nats.ClientURL(), "a", "r1")
	m.log.sessions["ann/phone"] = &pushmeshv1.Session{User: "ann", Name: "phone", Edge: "a", Generation: 7}
	m.log.sessions["ann/tablet"] = &pushmeshv1.Session{User: "ann", Name: "tablet", Edge: "gone", Generation: 7}
	sessions := pushmeshv1.NewSessionServiceClient(m.conn)
	for _, name := range []string{"phone", "tablet"} {
		if _, err := sessions.Delete(t.Context(), &pushmeshv1.SessionServiceDeleteRequest{User: "ann", Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	want := &meshv1.YieldSession{User: "ann", Name: "phone", Generation: 8, Code: wirev1.Code_CODE_NOT_FOUND}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.yields) != 1 || !proto.Equal(a.yields[0], want) {
		t.Errorf("the edge was told %v", a.yields)
	}
}

// The edge that holds a session that gets another owner is asked to store what was ACKed before,
// and told afterwards that its hold is over; an adoption that is refused, or tried, disturbs
// nobody.
func TestTheEdgeOfAnAdoptedSessionIsTold(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	a := startEdge(t, m.nats.ClientURL(), "a", "r1")
	m.log.sessions["client:phone/s"] = &pushmeshv1.Session{User: "client:phone", Name: "s", Edge: "a", Generation: 7}
	m.log.sessions["backend:worker/all"] = &pushmeshv1.Session{User: "backend:worker", Name: "all"}
	m.log.sessions["ann/t"] = &pushmeshv1.Session{User: "ann", Name: "t"}
	sessions := pushmeshv1.NewSessionServiceClient(m.conn)
	adopt := func(req *pushmeshv1.AdoptRequest, want wirev1.Code) {
		t.Helper()
		if _, err := sessions.Adopt(t.Context(), req); code.Of(err) != want {
			t.Errorf("%v: %v, want %s", req, err, want)
		}
	}
	for _, bad := range []*pushmeshv1.AdoptRequest{
		{},
		{User: "client:phone", ToUser: "ann"},
		{User: "client:phone", Name: "s"},
		{User: "client:phone", Name: "s", ToUser: "client:x"},
		{User: "client:phone", Name: "s", ToUser: "a/b"},
		{User: "client:", Name: "s", ToUser: "ann"},
		{User: "ann", Name: "t", ToUser: "bob"},
		{User: "$group", Name: "g", ToUser: "ann"},
		{User: "backend:worker", Name: "all", ToUser: "ann"},
		{User: "backend:worker", Name: "all", ToUser: "backend:worker"},
		// names that no Hello may have: nobody could go on with such a session
		{User: "client:phone", Name: "s", ToUser: "ann", ToName: "inbox\n"},
		{User: "client:phone", Name: "s", ToUser: "ann", ToName: strings.Repeat("x", 256)},
	} {
		adopt(bad, wirev1.Code_CODE_INVALID_ARGUMENT)
	}
	adopt(&pushmeshv1.AdoptRequest{User: "client:phone", Name: "none", ToUser: "ann"}, wirev1.Code_CODE_NOT_FOUND)
	adopt(&pushmeshv1.AdoptRequest{User: "client:phone", Name: "s", ToUser: "ann", ToName: "t"}, wirev1.Code_CODE_ALREADY_EXISTS)
	adopt(&pushmeshv1.AdoptRequest{User: "client:phone", Name: "s", ToUser: "ann", DryRun: true}, wirev1.Code_CODE_OK)
	a.read(func(e *fakeEdge) {
		if len(e.yields) != 0 {
			t.Errorf("before it is done the edge was told %v", e.yields)
		}
	})
	adopt(&pushmeshv1.AdoptRequest{User: "client:phone", Name: "s", ToUser: "ann"}, wirev1.Code_CODE_OK)
	adopt(&pushmeshv1.AdoptRequest{User: "backend:worker", Name: "all", ToUser: "backend:worker", ToName: "orders all"}, wirev1.Code_CODE_OK)
	if len(m.log.sessions) != 3 || m.log.sessions["ann/s"] == nil || m.log.sessions["backend:worker/orders all"] == nil {
		t.Errorf("sessions: %v", m.log.sessions)
	}
	want := []*meshv1.YieldSession{{User: "client:phone", Name: "s"}, {User: "client:phone", Name: "s", Generation: 8}}
	a.read(func(e *fakeEdge) {
		if len(e.yields) != 2 || !proto.Equal(e.yields[0], want[0]) || !proto.Equal(e.yields[1], want[1]) {
			t.Errorf("the edge was told %v", e.yields)
		}
	})
}

func TestDisconnectAsksEveryEdge(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	a := startEdge(t, m.nats.ClientURL(), "a", "r1")
	b := startEdge(t, m.nats.ClientURL(), "b", "r1")
	a.want("x")
	b.want("y")
	sessions := pushmeshv1.NewSessionServiceClient(m.conn)
	req := &pushmeshv1.DisconnectRequest{User: "ann", Code: wirev1.Code_CODE_FORBIDDEN, Reason: "banned"}
	eventually(t, "every edge answers in time", func() error {
		resp, err := sessions.Disconnect(t.Context(), req)
		if err == nil && resp.GetDisconnected() != 4 {
			t.Fatalf("got %v", resp)
		}
		return err
	})
	a.read(func(e *fakeEdge) {
		if len(e.disconnect) == 0 || e.disconnect[0].GetUser() != "ann" || e.disconnect[0].GetReason() != "banned" {
			t.Errorf("a was asked %v", e.disconnect)
		}
	})
	b.read(func(e *fakeEdge) { e.mute = true })
	if _, err := sessions.Disconnect(t.Context(), req); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
		t.Errorf("with an edge that does not answer: %v", err)
	}
	long := &pushmeshv1.DisconnectRequest{User: "ann", Reason: strings.Repeat("x", 1025)}
	if _, err := sessions.Disconnect(t.Context(), long); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
		t.Errorf("a long reason: %v", err)
	}
	if _, err := sessions.Disconnect(t.Context(), &pushmeshv1.DisconnectRequest{}); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
		t.Errorf("nobody named: %v", err)
	}
}

func TestSetProfileAsksEveryEdge(t *testing.T) {
	m := startMesh(t, nil)
	a := startEdge(t, m.nats.ClientURL(), "a", "r1")
	b := startEdge(t, m.nats.ClientURL(), "b", "r1")
	a.want("x")
	b.want("y")
	sessions := pushmeshv1.NewSessionServiceClient(m.conn)
	req := &pushmeshv1.SetProfileRequest{ClientId: "phone", User: "ann", Profile: map[string]float64{"sport": 1}, Vector: []float32{0.5}}
	eventually(t, "every edge answers in time", func() error {
		resp, err := sessions.SetProfile(t.Context(), req)
		if err == nil && resp.GetConnections() != 6 {
			t.Fatalf("got %v", resp)
		}
		return err
	})
	want := &meshv1.ReplaceProfile{ClientId: "phone", User: "ann", Profile: req.GetProfile(), Vector: req.GetVector()}
	a.read(func(e *fakeEdge) {
		if len(e.profiles) == 0 || !proto.Equal(e.profiles[0], want) {
			t.Errorf("a was asked %v", e.profiles)
		}
	})
	b.read(func(e *fakeEdge) { e.mute = true })
	if _, err := sessions.SetProfile(t.Context(), req); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
		t.Errorf("with an edge that does not answer: %v", err)
	}
	for what, bad := range map[string]*pushmeshv1.SetProfileRequest{
		"nobody named":  {Profile: map[string]float64{"a": 1}},
		"not finite":    {User: "ann", Profile: map[string]float64{"a": math.NaN()}},
		"a long vector": {User: "ann", Vector: make([]float32, 513)},
	} {
		if _, err := sessions.SetProfile(t.Context(), bad); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestPresenceAsksTheInterestedEdges(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	a := startEdge(t, m.nats.ClientURL(), "a", "r1")
	b := startEdge(t, m.nats.ClientURL(), "b", "r1")
	a.want("x", "y")
	b.want("y", "z/#")
	a.read(func(e *fakeEdge) { e.counts = map[string]uint64{"x": 1, "y": 10} })
	b.read(func(e *fakeEdge) { e.counts = map[string]uint64{"y": 100, "z/1": 1000} })
	presence := pushmeshv1.NewPresenceServiceClient(m.conn)
	req := &pushmeshv1.CountRequest{Topics: []string{"x", "nobody", "y", "z/1"}}
	counted := func(silent uint32, want string) {
		// edges have half a second to answer: a busy machine may need more than one try
		t.Helper()
		eventually(t, "counts", func() error {
			resp, err := presence.Count(t.Context(), req)
			if err == nil && (fmt.Sprint(resp.GetCounts()) != want || resp.GetSilentEdges() != silent) {
				err = fmt.Errorf("got %v, want %s and %d silent edges", resp, want, silent)
			}
			return err
		})
	}
	counted(0, "[1 0 110 1000]")
	b.read(func(e *fakeEdge) { e.mute = true })
	counted(1, "[1 0 10 0]")
	if _, err := presence.Count(t.Context(), &pushmeshv1.CountRequest{Topics: make([]string, 1001)}); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
		t.Errorf("too many: %v", err)
	}
}

func TestNamespaces(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	ns := pushmeshv1.NewNamespaceServiceClient(m.conn)
	put := &pushmeshv1.Namespace{Prefix: "orders", Policy: &pushmeshv1.Policy{Durable: true}}
	if _, err := ns.Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{Namespace: put}); err != nil {
		t.Fatal(err)
	}
	if resp := m.publish(t, &pushmeshv1.PublishRequest{Topic: "orders/1"}); resp.GetSeq() == 0 {
		t.Error("Put was answered, and the router goes by the policy of before")
	}
	if got, err := ns.Get(t.Context(), &pushmeshv1.NamespaceServiceGetRequest{Prefix: "orders"}); err != nil || !got.GetNamespace().GetPolicy().GetDurable() {
		t.Errorf("get: %v, %v", got, err)
	}
	if _, err := ns.Get(t.Context(), &pushmeshv1.NamespaceServiceGetRequest{Prefix: "none"}); code.Of(err) != wirev1.Code_CODE_NOT_FOUND {
		t.Errorf("get: %v", err)
	}
	if list, err := ns.List(t.Context(), &pushmeshv1.NamespaceServiceListRequest{}); err != nil || len(list.GetNamespaces()) != len(policy.Builtin())+1 {
		t.Errorf("list: %v, %v", list, err)
	}
	bad := &pushmeshv1.Namespace{Prefix: "$x", Policy: &pushmeshv1.Policy{}}
	if _, err := ns.Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{Namespace: bad}); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
		t.Errorf("put: %v", err)
	}
	if _, err := ns.Delete(t.Context(), &pushmeshv1.NamespaceServiceDeleteRequest{Prefix: "room"}); code.Of(err) != wirev1.Code_CODE_FORBIDDEN {
		t.Errorf("delete of a built-in one: %v", err)
	}
	if _, err := ns.Delete(t.Context(), &pushmeshv1.NamespaceServiceDeleteRequest{Prefix: "orders"}); err != nil {
		t.Errorf("delete: %v", err)
	}
}

// fakeCompute ranks by turning the candidates round.
type fakeCompute struct {
	meshv1.UnimplementedComputeServiceServer
	full     atomic.Bool
	deadline atomic.Bool
	last     atomic.Pointer[pushmeshv1.RankRequest]
}

func (c *fakeCompute) RankJobs(stream grpc.BidiStreamingServer[meshv1.RankJobsRequest, meshv1.RankJobsResponse]) error {
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		resp := &meshv1.RankJobsResponse{}
		for _, it := range req.GetItems() {
			resp.Items = append(resp.Items, c.rank(it.GetRef(), it.GetJob()))
		}
		if err := stream.Send(resp); err != nil {
			return err
		}
	}
}

func (c *fakeCompute) rank(ref uint64, req *meshv1.RankJobRequest) *meshv1.RankJobsResponse_Item {
	if c.full.Load() {
		return &meshv1.RankJobsResponse_Item{Ref: ref, Code: wirev1.Code_CODE_OVERLOADED, Error: "full", RetryAfterMs: 1000}
	}
	c.deadline.Store(req.GetTimeoutUs() > 0)
	c.last.Store(req.GetRank())
	resp := &pushmeshv1.RankResponse{}
	for i := len(req.GetRank().GetCandidates()) - 1; i >= 0; i-- {
		resp.Ranked = append(resp.Ranked, &pushmeshv1.RankResponse_Ranked{Id: req.GetRank().GetCandidates()[i].GetId(), Index: uint32(i)})
	}
	return &meshv1.RankJobsResponse_Item{Ref: ref, Job: &meshv1.RankJobResponse{Rank: resp}}
}

func TestRankIsHandedToCompute(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	compute, srv := &fakeCompute{}, grpc.NewServer()
	meshv1.RegisterComputeServiceServer(srv, compute)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	// The second address has nobody: it is passed over.
	m := startMesh(t, func(s *Settings) { s.Computes = []string{l.Addr().String(), "127.0.0.1:1"} })
	rank := pushmeshv1.NewRankServiceClient(m.conn)
	req := &pushmeshv1.RankRequest{Candidates: []*pushmeshv1.Candidate{{Id: "a"}, {Id: "b"}}}
	for range 4 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		resp, err := rank.Rank(ctx, req)
		cancel()
		if err != nil || len(resp.GetRanked()) != 2 || resp.GetRanked()[0].GetId() != "b" {
			t.Fatalf("got %v, %v", resp, err)
		}
		if !compute.deadline.Load() {
			t.Error("the deadline was not passed on")
		}
	}
	compute.full.Store(true)
	_, err = rank.Rank(t.Context(), req)
	if e := code.From(err); e == nil || e.Code != wirev1.Code_CODE_OVERLOADED || e.RetryAfter != time.Second {
		t.Errorf("full: %v", err)
	}
	srv.Stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if _, err := rank.Rank(t.Context(), req); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
		t.Errorf("gone: %v", err)
	}
}

func TestWithoutComputeRankIsUnavailable(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	_, err := pushmeshv1.NewRankServiceClient(m.conn).Rank(t.Context(), &pushmeshv1.RankRequest{})
	if code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
		t.Errorf("got %v", err)
	}
}

func TestHealthAndReflection(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	eventually(t, "serving", func() error {
		resp, err := grpc_health_v1.NewHealthClient(m.conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		if err != nil {
			return err
		}
		if resp.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			return errors.New(resp.GetStatus().String())
		}
		return nil
	})
	stream, err := grpc_reflection_v1.NewServerReflectionClient(m.conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&grpc_reflection_v1.ServerReflectionRequest{
		MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{},
	}); err != nil {
		t.Fatal(err)
	}
	resp, err := stream.Recv()
	if err != nil || len(resp.GetListServicesResponse().GetService()) < 7 {
		t.Errorf("got %v, %v", resp, err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Error(err)
	}
}
