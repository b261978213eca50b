package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/claimrun"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Exit codes of claim run that are not the command's.
const (
	exitLost       = 124
	exitNotStarted = 127
)

type claimList struct {
	Prefix   string `arg:"" optional:"" help:"Resources whose names begin with this; all by default."`
	Resource string `help:"Only this resource."`
	Limit    int    `placeholder:"N" help:"Show at most N; all by default."`
	routerFlag
	formatFlag
}

const pageOfPlaces = 1000

// Run prints the places.
func (c *claimList) Run(ctx context.Context, stdio stdio) error {
	return withClaims(c.routerFlag, func(api pushmeshv1.ClaimServiceClient) error {
		p := newPlacePrinter(stdio.out, c.formatFlag)
		ask := &pushmeshv1.ClaimServiceListRequest{Resource: c.Resource, Prefix: c.Prefix, Limit: pageOfPlaces}
		for left := c.Limit; ; {
			if c.Limit > 0 {
				ask.Limit = uint32(min(left, pageOfPlaces))
			}
			answer, err := api.List(ctx, ask)
			if err != nil {
				return err
			}
			for _, place := range answer.GetPlaces() {
				if err := p.print(place); err != nil {
					return err
				}
			}
			left -= len(answer.GetPlaces())
			if ask.PageToken = answer.GetNextPageToken(); ask.PageToken == "" || c.Limit > 0 && left <= 0 {
				return p.flush()
			}
		}
	})
}

type claimRun struct {
	Resource  string        `arg:"" help:"Name of the resource, written like a topic."`
	Command   []string      `arg:"" help:"The command and its arguments, after --."`
	Owner     string        `placeholder:"NAME" help:"Owner of the claim. Default: USER@HOST and the process id, so that two runs exclude each other."`
	KillAfter time.Duration `default:"10s" placeholder:"D" help:"Time between SIGTERM and SIGKILL (${default}; a third of the hold's TTL at most)."`
	lineFlags
	routerFlag
}

func (claimRun) Help() string {
	return `Waits in the line (positions are printed to standard error), runs the command while holding the resource, renews the hold after each third of its TTL, and
releases it when the command has ended. The command gets PUSHMESH_CLAIM_RESOURCE, PUSHMESH_CLAIM_OWNER and PUSHMESH_CLAIM_TOKEN in its environment: pass the
token to whatever the claim protects, and let that refuse smaller tokens.

If the hold is lost or can't be renewed, the command is stopped before the hold can end: its process group gets SIGTERM, and SIGKILL after --kill-after.
Processes of the group that remain when the command ends are killed. Signals are passed on to the command. It has a process group of its own, and so
can't read from a terminal.

Exit code: the command's, or 128 plus the signal that ended it; 124 if it was stopped because the hold was lost; 127 if it could not be started; 4 if
the resource was not granted (--no-wait, --wait); 1 for other failures, 2 for wrong usage.

  pushmesh claim run nightly/report -- ./report.sh --all
  pushmesh claim run deploy/web --ttl 1m --wait 10m -- make deploy`
}

// Run runs the command.
func (c *claimRun) Run(ctx context.Context, stdio stdio) error {
	return withClaims(c.routerFlag, func(api pushmeshv1.ClaimServiceClient) error {
		owner := cmp.Or(c.Owner, defaultOwner()+":"+strconv.Itoa(os.Getpid()))
		say := func(st *wirev1.ClaimState) {
			s := showClaim(st)
			fmt.Fprintf(stdio.err, "pushmesh: %s: %s\n", c.Resource, s.text())
		}
		claim := c.claim(api, c.Resource, owner, say)
		h, err := claim.Get(ctx)
		var not *claimrun.NotYoursError
		switch {
		case errors.As(err, &not):
			fmt.Fprintln(stdio.err, "pushmesh: "+err.Error())
			return errNotHeld
		case err != nil:
			return err
		}
		cmd := exec.Command(c.Command[0], c.Command[1:]...) //nolint:noctx // it is what the user wants to run, and is stopped by signals
		cmd.Stdin, cmd.Stdout, cmd.Stderr = stdio.in, stdio.out, stdio.err
		exit, lost, err := claim.Run(ctx, h, cmd, c.KillAfter)
		switch {
		case lost != nil:
			fmt.Fprintln(stdio.err, "pushmesh: the command was stopped: "+lost.Error())
			return exitError(exitLost)
		case err != nil && cmd.ProcessState == nil:
			fmt.Fprintln(stdio.err, "pushmesh: "+err.Error())
			return exitError(exitNotStarted)
		case err != nil:
			fmt.Fprintln(stdio.err, "pushmesh: "+explain(err))
		}
		if exit != 0 {
			return exitError(exit)
		}
		return nil
	})
}
