package ranking

import (
	"context"
	"fmt"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// SetProfile is the command pushmesh session set-profile.
type SetProfile struct {
	Features []string  `arg:"" optional:"" name:"name=value" help:"Features of the profile; without any and without --vector the profile is empty."`
	ClientID string    `name:"client-id" placeholder:"ID" help:"Client id, as the clients sent it in their Hello."`
	User     string    `placeholder:"USER" help:"Connections of this user. Without authentication a client is the user client:ID."`
	Vector   []float32 `placeholder:"NUMBER" help:"The vector of the profile, separated by commas."`
	cmdline.RouterFlag
}

// Help is shown by --help.
func (SetProfile) Help() string {
	return `Prints how many connections have the new profile. It replaces the whole earlier profile until the connections end. If an
edge does not answer, the exit code is 1; trying again is safe.

  pushmesh session set-profile --client-id phone-7 sport=1 politics=0.2
  pushmesh session set-profile --user client:phone-7 --vector 0.1,0.7`
}

// Run replaces it.
func (c *SetProfile) Run(ctx context.Context, stdio cmdline.IO) error {
	if c.ClientID == "" && c.User == "" {
		return cmdline.Usage("--client-id or --user is needed")
	}
	features, err := cmdline.Numbers("profile", c.Features)
	if err != nil {
		return err
	}
	return cmdline.Call(ctx, c.RouterFlag, cmdline.CallTimeout, pushmeshv1.NewSessionServiceClient, func(ctx context.Context, api pushmeshv1.SessionServiceClient) error {
		answer, err := api.SetProfile(ctx, &pushmeshv1.SetProfileRequest{
			ClientId: c.ClientID, User: c.User, Profile: features, Vector: c.Vector,
		})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(stdio.Out, "%d connections\n", answer.GetConnections())
		return err
	})
}
