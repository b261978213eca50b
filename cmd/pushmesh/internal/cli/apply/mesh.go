package apply

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/meshfile"
	"github.com/pushmesh/pushmesh/internal/identity/backends"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// page is how many teams or memberships are asked for at a time.
const page = 1000

// mesh is what there is. Kinds that nobody asked for are empty.
type mesh struct {
	namespaces map[string]*pushmeshv1.Namespace
	models     map[string][]*pushmeshv1.Model // newest first
	teams      map[string]*pushmeshv1.Team
	members    map[string][]string
	entries    []backends.Entry // of the backends file
}

// apis are those of a router. Each call has a time of its own.
type apis struct {
	namespaces pushmeshv1.NamespaceServiceClient
	models     pushmeshv1.RankServiceClient
	teams      pushmeshv1.MembershipServiceClient
}

func apisOf(conn grpc.ClientConnInterface) *apis {
	return &apis{pushmeshv1.NewNamespaceServiceClient(conn), pushmeshv1.NewRankServiceClient(conn), pushmeshv1.NewMembershipServiceClient(conn)}
}

// call is one that has its time.
func call[Req, Resp any](ctx context.Context, of func(context.Context, Req, ...grpc.CallOption) (Resp, error), req Req) (Resp, error) {
	ctx, cancel := context.WithTimeout(ctx, cmdline.CallTimeout)
	defer cancel()
	return of(ctx, req)
}

// read asks for what is of these kinds, and for the members of teams that managed names.
func (a *apis) read(ctx context.Context, kinds map[string]bool, managed func(team string) bool) (*mesh, error) {
	m := &mesh{namespaces: map[string]*pushmeshv1.Namespace{}, models: map[string][]*pushmeshv1.Model{}, teams: map[string]*pushmeshv1.Team{}, members: map[string][]string{}}
	if kinds[meshfile.Namespaces] || kinds[meshfile.Models] { // which name models
		answer, err := call(ctx, a.namespaces.List, &pushmeshv1.NamespaceServiceListRequest{})
		if err != nil {
			return nil, err
		}
		for _, ns := range answer.GetNamespaces() {
			m.namespaces[ns.GetPrefix()] = ns
		}
		models, err := call(ctx, a.models.ListModels, &pushmeshv1.ListModelsRequest{})
		if err != nil {
			return nil, err
		}
		for _, one := range models.GetModels() {
			m.models[one.GetName()] = append(m.models[one.GetName()], one)
		}
	}
	if !kinds[meshfile.Teams] {
		return m, nil
	}
	all, err := a.listTeams(ctx)
	if err != nil {
		return nil, err
	}
	for name, one := range all {
		m.teams[name] = one
		if managed(name) {
			if m.members[name], err = a.membersOf(ctx, name); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

func (a *apis) listTeams(ctx context.Context) (map[string]*pushmeshv1.Team, error) {
	all := map[string]*pushmeshv1.Team{}
	err := cmdline.Pages(0, page, func(n uint32, token string) (int, string, error) {
		answer, err := call(ctx, a.teams.ListTeams, &pushmeshv1.ListTeamsRequest{Limit: n, PageToken: token})
		if err != nil {
			return 0, "", err
		}
		for _, one := range answer.GetTeams() {
			all[one.GetName()] = one
		}
		return len(answer.GetTeams()), answer.GetNextPageToken(), nil
	})
	return all, err
}

// membersOf a team, sorted.
func (a *apis) membersOf(ctx context.Context, team string) (all []string, err error) {
	err = cmdline.Pages(0, page, func(n uint32, token string) (int, string, error) {
		answer, err := call(ctx, a.teams.List, &pushmeshv1.MembershipServiceListRequest{Team: team, Limit: n, PageToken: token})
		if err != nil {
			return 0, "", err
		}
		for _, one := range answer.GetMemberships() {
			all = append(all, one.GetUser())
		}
		return len(answer.GetMemberships()), answer.GetNextPageToken(), nil
	})
	slices.Sort(all)
	return all, err
}

// understood is what is wrong with a namespace that this program, or the store, does not know
// whole.
func understood(ns *pushmeshv1.Namespace) error {
	if why := ns.GetNotUnderstood(); why != "" {
		return fmt.Errorf("the store does not understand the policy of namespace %s, which a newer version wrote: %s", ns.GetPrefix(), why)
	}
	if newer(ns.GetPolicy().ProtoReflect()) {
		return fmt.Errorf("the policy of namespace %s has fields that this version of pushmesh does not know: use a newer one", ns.GetPrefix())
	}
	return nil
}
