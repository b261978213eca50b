package router

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

func (s *fakeStore) Revoke(_ context.Context, req *meshv1.StoreServiceRevokeRequest) (*meshv1.StoreServiceRevokeResponse, error) {
	r := proto.CloneOf(req.GetRevocation())
	r.At, r.Version = 1, 1
	return &meshv1.StoreServiceRevokeResponse{Revocation: r}, nil
}

func (s *fakeStore) Restore(context.Context, *meshv1.StoreServiceRestoreRequest) (*meshv1.StoreServiceRestoreResponse, error) {
	return &meshv1.StoreServiceRestoreResponse{}, nil
}

// ListDeadLetters has one for each id.
func (s *fakeStore) ListDeadLetters(_ context.Context, req *meshv1.ListDeadLettersRequest) (*meshv1.ListDeadLettersResponse, error) {
	body, err := wire.Body(&wirev1.Message{Id: make([]byte, 16)})
	if err != nil {
		return nil, err
	}
	resp := &meshv1.ListDeadLettersResponse{}
	for _, id := range req.GetIds() {
		resp.DeadLetters = append(resp.DeadLetters, &meshv1.DeadLetter{Id: id, Topic: "room/1", At: id, Body: body})
	}
	return resp, nil
}

func (s *fakeStore) DiscardDeadLetters(_ context.Context, req *meshv1.DiscardDeadLettersRequest) (*meshv1.DiscardDeadLettersResponse, error) {
	return &meshv1.DiscardDeadLettersResponse{Discarded: uint32(len(req.GetIds()))}, nil
}

// PutTeam finds one that granted something else.
func (s *fakeStore) PutTeam(_ context.Context, req *meshv1.StoreServicePutTeamRequest) (*meshv1.StoreServicePutTeamResponse, error) {
	before := proto.CloneOf(req.GetTeam())
	before.Subscribe = []string{"before/#"}
	return &meshv1.StoreServicePutTeamResponse{Version: 7, Before: before}, nil
}

func (s *fakeStore) DeleteTeam(_ context.Context, req *meshv1.StoreServiceDeleteTeamRequest) (*meshv1.StoreServiceDeleteTeamResponse, error) {
	return &meshv1.StoreServiceDeleteTeamResponse{Before: &pushmeshv1.Team{Name: req.GetName()}}, nil
}

func (s *fakeStore) ChangeMembers(_ context.Context, req *meshv1.StoreServiceChangeMembersRequest) (*meshv1.StoreServiceChangeMembersResponse, error) {
	return &meshv1.StoreServiceChangeMembersResponse{Changed: uint32(len(req.GetUsers()))}, nil
}

func (s *fakeStore) AcceptServer(_ context.Context, req *meshv1.StoreServiceAcceptServerRequest) (*meshv1.StoreServiceAcceptServerResponse, error) {
	return &meshv1.StoreServiceAcceptServerResponse{Response: &pushmeshv1.AcceptServerResponse{
		Database: req.GetRequest().GetDatabase(), StoreId: "s1", Before: &pushmeshv1.DatabaseServer{System: 7, Timeline: 1},
		After: &pushmeshv1.DatabaseServer{System: 7, Timeline: 2}, Epoch: 9, Shards: 1024,
	}}, nil
}
