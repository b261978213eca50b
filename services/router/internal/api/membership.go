package api

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/team"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/audit"
)

// TeamStore is what Membership needs of the store (storeclient.Client).
type TeamStore interface {
	PutTeam(ctx context.Context, req *meshv1.StoreServicePutTeamRequest) (*meshv1.StoreServicePutTeamResponse, error)
	DeleteTeam(ctx context.Context, req *meshv1.StoreServiceDeleteTeamRequest) (*meshv1.StoreServiceDeleteTeamResponse, error)
	ChangeMembers(ctx context.Context, req *meshv1.StoreServiceChangeMembersRequest) (*meshv1.StoreServiceChangeMembersResponse, error)
	FindTeams(ctx context.Context, req *meshv1.StoreServiceFindTeamsRequest) (*meshv1.StoreServiceFindTeamsResponse, error)
}

const (
	defaultTeams = 100
	maxTeams     = 1000
)

// Membership is pushmesh.v1.MembershipService.
type Membership struct {
	pushmeshv1.UnimplementedMembershipServiceServer
	store TeamStore
}

// NewMembership makes the service.
func NewMembership(store TeamStore) *Membership { return &Membership{store: store} }

// PutTeam implements MembershipService.
func (m *Membership) PutTeam(ctx context.Context, req *pushmeshv1.PutTeamRequest) (*pushmeshv1.PutTeamResponse, error) {
	resp, err := m.store.PutTeam(ctx, &meshv1.StoreServicePutTeamRequest{Team: req.GetTeam()})
	if err != nil {
		return nil, code.From(err)
	}
	kept := proto.CloneOf(req.GetTeam())
	kept.Version = resp.GetVersion()
	tellBefore(ctx, resp.GetBefore())
	audit.After(ctx, audit.Whole{Of: kept})
	return &pushmeshv1.PutTeamResponse{Team: kept}, nil
}

// DeleteTeam implements MembershipService.
func (m *Membership) DeleteTeam(ctx context.Context, req *pushmeshv1.DeleteTeamRequest) (*pushmeshv1.DeleteTeamResponse, error) {
	resp, err := m.store.DeleteTeam(ctx, &meshv1.StoreServiceDeleteTeamRequest{Name: req.GetName()})
	if err != nil {
		return nil, code.From(err)
	}
	tellBefore(ctx, resp.GetBefore())
	audit.After(ctx, nil)
	return &pushmeshv1.DeleteTeamResponse{}, nil
}

// tellBefore tells the audit what a store found before a change, in the same transaction.
func tellBefore(ctx context.Context, t *pushmeshv1.Team) {
	if t == nil {
		audit.Before(ctx, nil)
		return
	}
	audit.Before(ctx, audit.Whole{Of: t})
}

// maxNames is how many bytes users that are named in a call have as JSON, so that the audit names
// each.
const maxNames = audit.MaxWhole - 1<<10

// checkNames refuses more users than the audit could name.
func checkNames(users []string) error {
	text, err := json.Marshal(users)
	if err == nil && len(text) > maxNames {
		err = fmt.Errorf("the users of one call have %d bytes, %d at most: name fewer at a time", len(text), maxNames)
	}
	if err != nil {
		return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, err.Error())
	}
	return nil
}

// ListTeams implements MembershipService.
func (m *Membership) ListTeams(ctx context.Context, req *pushmeshv1.ListTeamsRequest) (*pushmeshv1.ListTeamsResponse, error) {
	page, err := m.find(ctx, &meshv1.StoreServiceFindTeamsRequest{After: req.GetPageToken(), Limit: req.GetLimit()})
	if err != nil {
		return nil, err
	}
	resp := &pushmeshv1.ListTeamsResponse{}
	for _, e := range page.GetEntries() {
		resp.Teams = append(resp.Teams, e.GetTeam())
	}
	if n := len(resp.GetTeams()); page.GetMore() && n > 0 {
		resp.NextPageToken = resp.GetTeams()[n-1].GetName()
	}
	return resp, nil
}

// Add implements MembershipService.
func (m *Membership) Add(ctx context.Context, req *pushmeshv1.MembershipServiceAddRequest) (*pushmeshv1.MembershipServiceAddResponse, error) {
	if err := checkNames(req.GetUsers()); err != nil {
		return nil, err
	}
	resp, err := m.store.ChangeMembers(ctx, &meshv1.StoreServiceChangeMembersRequest{Team: req.GetTeam(), Users: req.GetUsers()})
	if err != nil {
		return nil, code.From(err)
	}
	audit.After(ctx, audit.Whole{Of: map[string]any{"added": resp.GetChanged(), "team": req.GetTeam(), "users": req.GetUsers()}})
	return &pushmeshv1.MembershipServiceAddResponse{Added: resp.GetChanged()}, nil
}

// Remove implements MembershipService.
func (m *Membership) Remove(ctx context.Context, req *pushmeshv1.MembershipServiceRemoveRequest) (*pushmeshv1.MembershipServiceRemoveResponse, error) {
	if err := checkNames(req.GetUsers()); err != nil {
		return nil, err
	}
	resp, err := m.store.ChangeMembers(ctx, &meshv1.StoreServiceChangeMembersRequest{Team: req.GetTeam(), Users: req.GetUsers(), Remove: true})
	if err != nil {
		return nil, code.From(err)
	}
	audit.After(ctx, audit.Whole{Of: map[string]any{"removed": resp.GetChanged(), "team": req.GetTeam(), "users": req.GetUsers()}})
	return &pushmeshv1.MembershipServiceRemoveResponse{Removed: resp.GetChanged()}, nil
}

// List implements MembershipService.
func (m *Membership) List(ctx context.Context, req *pushmeshv1.MembershipServiceListRequest) (*pushmeshv1.MembershipServiceListResponse, error) {
	var err error
	switch name, user := req.GetTeam(), req.GetUser(); {
	case (name == "") == (user == ""):
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "a list of memberships names a team, or a user, and not both")
	case name != "":
		err = team.CheckName(name)
	default:
		err = identity.CheckUser(user)
	}
	if err != nil {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, err.Error())
	}
	page, err := m.find(ctx, &meshv1.StoreServiceFindTeamsRequest{Team: req.GetTeam(), User: req.GetUser(), After: req.GetPageToken(), Limit: req.GetLimit()})
	if err != nil {
		return nil, err
	}
	resp := &pushmeshv1.MembershipServiceListResponse{}
	for _, e := range page.GetEntries() {
		resp.Memberships = append(resp.Memberships, &pushmeshv1.Membership{Team: e.GetTeam().GetName(), User: e.GetUser()})
	}
	if n := len(resp.GetMemberships()); page.GetMore() && n > 0 {
		last := resp.GetMemberships()[n-1]
		if resp.NextPageToken = last.GetUser(); req.GetTeam() == "" {
			resp.NextPageToken = last.GetTeam()
		}
	}
	return resp, nil
}

// find asks the store for a page.
func (m *Membership) find(ctx context.Context, req *meshv1.StoreServiceFindTeamsRequest) (*meshv1.StoreServiceFindTeamsResponse, error) {
	switch limit := req.GetLimit(); {
	case limit == 0:
		req.Limit = defaultTeams
	case limit > maxTeams:
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, fmt.Sprintf("limit is %d, at most 1,000", limit))
	}
	if len(req.GetAfter()) > identity.MaxUser {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "page_token is none that an answer had")
	}
	page, err := m.store.FindTeams(ctx, req)
	if err != nil {
		return nil, code.From(err)
	}
	return page, nil
}
