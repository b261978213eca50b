// Package operate has the commands of those who run a mesh.
package operate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

type Disconnect struct {
	ClientID string `name:"client-id" placeholder:"ID" help:"Client id, as the clients sent it in their Hello."`
	User     string `placeholder:"USER" help:"Connections of this user. Without authentication a client is the user client:ID."`
	Code     string `default:"CANCELLED" help:"Code that the clients get (${default}). After UNAVAILABLE, DRAINING or RATE_LIMITED they reconnect by themselves; after FORBIDDEN they do not."`
	Reason   string `placeholder:"TEXT" help:"Text that the clients get with the code."`
	cmdline.RouterFlag
}

func (Disconnect) Help() string {
	return `Prints how many connections were closed. If an edge does not answer, the exit code is 1; trying again is safe.

  pushmesh disconnect --client-id phone-7 --code FORBIDDEN --reason banned
  pushmesh disconnect --user client:phone-7 --code UNAVAILABLE --reason 'please reconnect'`
}

// Run closes them.
func (c *Disconnect) Run(ctx context.Context, stdio cmdline.IO) error {
	if c.ClientID == "" && c.User == "" {
		return cmdline.Usage("--client-id or --user is needed")
	}
	why, err := parseCode(c.Code)
	if err != nil {
		return err
	}
	return cmdline.Call(ctx, c.RouterFlag, cmdline.CallTimeout, pushmeshv1.NewSessionServiceClient, func(ctx context.Context, api pushmeshv1.SessionServiceClient) error {
		answer, err := api.Disconnect(ctx, &pushmeshv1.DisconnectRequest{
			ClientId: c.ClientID, User: c.User, Code: why, Reason: c.Reason,
		})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(stdio.Out, "%d disconnected\n", answer.GetDisconnected())
		return err
	})
}

// parseCode reads a code by its name, in any case.
func parseCode(name string) (wirev1.Code, error) {
	n, ok := wirev1.Code_value["CODE_"+strings.ToUpper(name)]
	if ok && n != 0 {
		return wirev1.Code(n), nil
	}
	var names []string
	for n := range wirev1.Code_name {
		if n != 0 {
			names = append(names, code.Name(wirev1.Code(n)))
		}
	}
	slices.Sort(names)
	return 0, cmdline.Usage("--code %s: one of %s", name, strings.Join(names, " "))
}
