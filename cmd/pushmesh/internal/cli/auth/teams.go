package auth

import (
	"context"
	"fmt"
	"slices"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/team"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// withTeams is a principal with what the teams of its user grant, as edges have it.
func (c *Explain) withTeams(ctx context.Context, who *identity.Principal) (*identity.Principal, error) {
	all := *who
	err := cmdline.Call(ctx, c.RouterFlag, cmdline.CallTimeout, pushmeshv1.NewMembershipServiceClient, func(ctx context.Context, api pushmeshv1.MembershipServiceClient) error {
		resp, err := api.List(ctx, &pushmeshv1.MembershipServiceListRequest{User: who.User, Limit: team.MaxOfUser})
		if err != nil {
			return err
		}
		var names []string
		for _, m := range resp.GetMemberships() {
			names = append(names, m.GetTeam())
		}
		grants, err := grantsOf(ctx, api, names)
		if len(grants) > 0 {
			all.Grants = who.Grants.With(grants...)
		}
		return err
	})
	return &all, err
}

// grantsOf are what teams grant, in the order of their names.
func grantsOf(ctx context.Context, api pushmeshv1.MembershipServiceClient, names []string) (all []*identity.Grants, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	err = cmdline.Pages(0, team.MaxTeams, func(n uint32, token string) (int, string, error) {
		resp, err := api.ListTeams(ctx, &pushmeshv1.ListTeamsRequest{Limit: n, PageToken: token})
		if err != nil {
			return 0, "", err
		}
		for _, one := range resp.GetTeams() {
			if !slices.Contains(names, one.GetName()) {
				continue
			}
			grants, err := team.Grants(one)
			if err != nil {
				return 0, "", fmt.Errorf("team %s: %w", one.GetName(), err)
			}
			if grants != nil {
				all = append(all, grants)
			}
		}
		return len(resp.GetTeams()), resp.GetNextPageToken(), nil
	})
	return all, err
}
