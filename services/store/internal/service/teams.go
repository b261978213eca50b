package service

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/team"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const (
	// maxTeams is the most entries of one page.
	maxTeams = 1000
	// maxTeamBytes is the most bytes of one page, but for its last entry.
	maxTeamBytes = 1 << 20
)

// teamed tells every edge of a change, and of one that may have been made: where the database's
// answer was lost, whoever asks again changes nothing.
func (s *Service) teamed(version uint64, err error) {
	if err != nil {
		version = 0
	}
	s.cfg.Teamed(version)
}

// PutTeam keeps a team, and tells every edge.
func (s *Service) PutTeam(ctx context.Context, req *meshv1.StoreServicePutTeamRequest) (*meshv1.StoreServicePutTeamResponse, error) {
	if err := team.Check(req.GetTeam()); err != nil {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, err.Error())
	}
	version, before, err := s.cfg.Backend.PutTeam(ctx, req.GetTeam())
	if s.teamed(version, err); err != nil {
		return nil, s.refused(ctx, "put team", err)
	}
	return &meshv1.StoreServicePutTeamResponse{Version: version, Before: before}, nil
}

// DeleteTeam ends a team, and tells every edge.
func (s *Service) DeleteTeam(ctx context.Context, req *meshv1.StoreServiceDeleteTeamRequest) (*meshv1.StoreServiceDeleteTeamResponse, error) {
	if err := team.CheckName(req.GetName()); err != nil {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, err.Error())
	}
	version, before, err := s.cfg.Backend.DeleteTeam(ctx, req.GetName())
	if s.teamed(version, err); err != nil {
		return nil, s.refused(ctx, "delete team", err)
	}
	return &meshv1.StoreServiceDeleteTeamResponse{Before: before}, nil
}

// ChangeMembers adds or removes users, and tells every edge.
func (s *Service) ChangeMembers(ctx context.Context, req *meshv1.StoreServiceChangeMembersRequest) (*meshv1.StoreServiceChangeMembersResponse, error) {
	users, err := usersOf(req)
	if err != nil {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, err.Error())
	}
	change := s.cfg.Backend.AddMembers
	if req.GetRemove() {
		change = s.cfg.Backend.RemoveMembers
	}
	changed, version, err := change(ctx, req.GetTeam(), users)
	if s.teamed(version, err); err != nil {
		return nil, s.refused(ctx, "change members", err)
	}
	return &meshv1.StoreServiceChangeMembersResponse{Changed: uint32(changed)}, nil
}

// usersOf checks a change of members, and names each user once.
func usersOf(req *meshv1.StoreServiceChangeMembersRequest) ([]string, error) {
	if err := team.CheckName(req.GetTeam()); err != nil {
		return nil, err
	}
	if n := len(req.GetUsers()); n == 0 || n > team.MaxUsers {
		return nil, fmt.Errorf("%d users are named, 1 to %d may be", n, team.MaxUsers)
	}
	users := slices.Compact(slices.Sorted(slices.Values(req.GetUsers())))
	for _, user := range users {
		if err := identity.CheckUser(user); err != nil {
			return nil, fmt.Errorf("%.200q: %w", user, err)
		}
	}
	return users, nil
}

// FindTeams answers with a page.
func (s *Service) FindTeams(ctx context.Context, req *meshv1.StoreServiceFindTeamsRequest) (*meshv1.StoreServiceFindTeamsResponse, error) {
	limit := pageOf(req.GetLimit())
	all, err := s.cfg.Backend.FindTeams(ctx, req.GetTeam(), req.GetUser(), req.GetAfter(), limit+1)
	if err != nil {
		return nil, s.refused(ctx, "find teams", err)
	}
	n := min(fits(all), limit)
	return &meshv1.StoreServiceFindTeamsResponse{Entries: all[:n], More: n < len(all)}, nil
}

// FollowTeams answers with a page.
func (s *Service) FollowTeams(ctx context.Context, req *meshv1.StoreServiceFollowTeamsRequest) (*meshv1.StoreServiceFollowTeamsResponse, error) {
	page, err := s.cfg.Backend.FollowTeams(ctx, req.GetHaveVersion(), req.GetBegunVersion(), pageOf(req.GetLimit()))
	if err != nil {
		return nil, s.refused(ctx, "follow teams", err)
	}
	if n := fits(page.All); n < len(page.All) {
		page.All, page.More, page.Version = page.All[:n], true, page.All[n-1].GetVersion()
	}
	return &meshv1.StoreServiceFollowTeamsResponse{Version: page.Version, NewestVersion: page.Newest, More: page.More, Anew: page.Anew, Entries: page.All}, nil
}

func pageOf(limit uint32) int {
	if limit == 0 || limit > maxTeams {
		return maxTeams
	}
	return int(limit)
}

// fits is how many entries a page has room for.
func fits(all []*meshv1.TeamEntry) (n int) {
	for bytes := 0; n < len(all) && bytes < maxTeamBytes; n++ {
		bytes += proto.Size(all[n])
	}
	return n
}
