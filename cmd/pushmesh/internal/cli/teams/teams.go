// Package teams has the commands about teams and who is in them.
package teams

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/internal/team"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Command is the command pushmesh team.
type Command struct {
	Put     put     `cmd:"" help:"Make a team, or replace what it grants."`
	Delete  remove  `cmd:"" help:"Delete a team and its memberships."`
	List    list    `cmd:"" help:"List teams, with what they grant."`
	Add     add     `cmd:"" help:"Add users to a team."`
	Remove  leave   `cmd:"" help:"Remove users from a team."`
	Members members `cmd:"" help:"List the members of a team, or the teams of a user."`
}

// Help of the command.
func (Command) Help() string {
	return `A team grants the users in it something beside what their tokens grant, at every edge that checks tokens (or asks a backend). A change reaches connections
that are there within a second: what is granted no more ends. Teams are for small meshes, of 1,000 teams and 100,000 memberships at most.

  pushmesh team put editors --subscribe 'doc/#' --publish 'doc/+/edit'
  pushmesh team add editors ann bob
  pushmesh team members --user ann
  pushmesh team remove editors bob`
}

func with(ctx context.Context, f cmdline.RouterFlag, within time.Duration, call func(context.Context, pushmeshv1.MembershipServiceClient) error) error {
	return cmdline.Call(ctx, f, within, pushmeshv1.NewMembershipServiceClient, call)
}

type put struct {
	Name      string   `arg:"" help:"Name of the team."`
	Subscribe []string `sep:"none" placeholder:"FILTER" help:"Topics that its users may subscribe to; may be given several times, like those that follow. A level of a filter may be {user}."`
	Publish   []string `sep:"none" placeholder:"FILTER" help:"Topics that they may publish to."`
	Claim     []string `sep:"none" placeholder:"FILTER" help:"Resources that they may claim."`
	Group     []string `sep:"none" placeholder:"GROUP/FILTER" help:"Consumer groups that they may be members of (they need --subscribe for it, too)."`
	cmdline.RouterFlag
}

// Help of the command.
func (put) Help() string {
	return `The team grants what the flags say, and no longer what it granted before; its users stay in it.

  pushmesh team put editors --subscribe 'doc/#' --publish 'doc/+/edit'
  pushmesh team put workers --subscribe 'jobs/#' --group 'crew/jobs/#'`
}

// Run puts the team.
func (c *put) Run(ctx context.Context, stdio cmdline.IO) error {
	one := &pushmeshv1.Team{Name: c.Name, Subscribe: c.Subscribe, Publish: c.Publish, Claim: c.Claim, Group: c.Group}
	if err := team.Check(one); err != nil {
		return cmdline.Usage("%w", err)
	}
	return with(ctx, c.RouterFlag, cmdline.CallTimeout, func(ctx context.Context, api pushmeshv1.MembershipServiceClient) error {
		if _, err := api.PutTeam(ctx, &pushmeshv1.PutTeamRequest{Team: one}); err != nil {
			return err
		}
		_, err := fmt.Fprintf(stdio.Out, "team %s grants %d filters\n", c.Name, len(c.Subscribe)+len(c.Publish)+len(c.Claim)+len(c.Group))
		return err
	})
}

type remove struct {
	Name string `arg:"" help:"Name of the team."`
	cmdline.RouterFlag
}

// Run deletes the team.
func (c *remove) Run(ctx context.Context, stdio cmdline.IO) error {
	return with(ctx, c.RouterFlag, cmdline.CallTimeout, func(ctx context.Context, api pushmeshv1.MembershipServiceClient) error {
		if _, err := api.DeleteTeam(ctx, &pushmeshv1.DeleteTeamRequest{Name: c.Name}); err != nil {
			return err
		}
		_, err := fmt.Fprintln(stdio.Out, "deleted")
		return err
	})
}

// page is how many are asked for at a time.
const page = 500

type list struct {
	Limit int `placeholder:"N" help:"Show at most N; all by default."`
	cmdline.RouterFlag
	cmdline.FormatFlag
}

// listed is a team as it is printed.
type listed struct {
	Name      string   `json:"name"`
	Subscribe []string `json:"subscribe,omitempty"`
	Publish   []string `json:"publish,omitempty"`
	Claim     []string `json:"claim,omitempty"`
	Group     []string `json:"group,omitempty"`
}

// Run prints the teams.
func (c *list) Run(ctx context.Context, stdio cmdline.IO) error {
	if c.Limit < 0 {
		return cmdline.Usage("--limit is below 0")
	}
	return with(ctx, c.RouterFlag, 0, func(ctx context.Context, api pushmeshv1.MembershipServiceClient) error {
		t := c.Table(stdio.Out, "TEAM", "SUBSCRIBE", "PUBLISH", "CLAIM", "GROUP")
		show := func(filters []string) string { return cmdline.OrDash(strings.Join(filters, " ")) }
		err := cmdline.Pages(c.Limit, page, func(n uint32, token string) (int, string, error) {
			resp, err := api.ListTeams(ctx, &pushmeshv1.ListTeamsRequest{Limit: n, PageToken: token})
			if err != nil {
				return 0, "", err
			}
			for _, one := range resp.GetTeams() {
				row := listed{Name: one.GetName(), Subscribe: one.GetSubscribe(), Publish: one.GetPublish(), Claim: one.GetClaim(), Group: one.GetGroup()}
				if err := t.Row(row, row.Name, show(row.Subscribe), show(row.Publish), show(row.Claim), show(row.Group)); err != nil {
					return 0, "", err
				}
			}
			return len(resp.GetTeams()), resp.GetNextPageToken(), nil
		})
		if err != nil {
			return err
		}
		return t.Flush()
	})
}

// users are whom a change is about.
type users struct {
	Team  string   `arg:"" help:"Name of the team."`
	Users []string `arg:"" name:"user" help:"Users, by the names that the mesh knows them by (with the issuer's prefix); 1,000 at most."`
	cmdline.RouterFlag
}

type add struct{ users }

// Run adds users.
func (c *add) Run(ctx context.Context, stdio cmdline.IO) error {
	return with(ctx, c.RouterFlag, cmdline.CallTimeout, func(ctx context.Context, api pushmeshv1.MembershipServiceClient) error {
		resp, err := api.Add(ctx, &pushmeshv1.MembershipServiceAddRequest{Team: c.Team, Users: c.Users})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(stdio.Out, "added %d\n", resp.GetAdded())
		return err
	})
}

type leave struct{ users }

// Run removes users.
func (c *leave) Run(ctx context.Context, stdio cmdline.IO) error {
	return with(ctx, c.RouterFlag, cmdline.CallTimeout, func(ctx context.Context, api pushmeshv1.MembershipServiceClient) error {
		resp, err := api.Remove(ctx, &pushmeshv1.MembershipServiceRemoveRequest{Team: c.Team, Users: c.Users})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(stdio.Out, "removed %d\n", resp.GetRemoved())
		return err
	})
}

type members struct {
	Team  string `placeholder:"NAME" help:"List the members of this team."`
	User  string `placeholder:"NAME" help:"List the teams of this user."`
	Limit int    `placeholder:"N" help:"Show at most N; all by default."`
	cmdline.RouterFlag
	cmdline.FormatFlag
}

// membership as it is printed.
type membership struct {
	Team string `json:"team"`
	User string `json:"user"`
}

// Run prints memberships.
func (c *members) Run(ctx context.Context, stdio cmdline.IO) error {
	switch {
	case (c.Team == "") == (c.User == ""):
		return cmdline.Usage("it needs either --team or --user")
	case c.Limit < 0:
		return cmdline.Usage("--limit is below 0")
	}
	return with(ctx, c.RouterFlag, 0, func(ctx context.Context, api pushmeshv1.MembershipServiceClient) error {
		t := c.Table(stdio.Out, "TEAM", "USER")
		err := cmdline.Pages(c.Limit, page, func(n uint32, token string) (int, string, error) {
			resp, err := api.List(ctx, &pushmeshv1.MembershipServiceListRequest{Team: c.Team, User: c.User, Limit: n, PageToken: token})
			if err != nil {
				return 0, "", err
			}
			for _, m := range resp.GetMemberships() {
				if err := t.Row(membership{m.GetTeam(), m.GetUser()}, m.GetTeam(), m.GetUser()); err != nil {
					return 0, "", err
				}
			}
			return len(resp.GetMemberships()), resp.GetNextPageToken(), nil
		})
		if err != nil {
			return err
		}
		return t.Flush()
	})
}
