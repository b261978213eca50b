package claims

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
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Exit codes of claim run that are not the command's.
const (
	ExitLost       = 124
	ExitNotStarted = 127
)

type claimList struct {
	Prefix   string `arg:"" optional:"" help:"Resources whose names begin with this; all by default."`
	Resource string `help:"Only this resource."`
	Limit    int    `placeholder:"N" help:"Show at most N; all by default."`
	cmdline.RouterFlag
	cmdline.FormatFlag
}

const pageOfPlaces = 1000

// Run prints the places.
func (c *claimList) Run(ctx context.Context, stdio cmdline.IO) error {
	return withClaims(ctx, c.RouterFlag, func(ctx context.Context, api pushmeshv1.ClaimServiceClient) error {
		t := c.Table(stdio.Out, "RESOURCE", "OWNER", "PLACE", "TOKEN", "PRIORITY", "SINCE", "ENDS", "NODE")
		err := cmdline.Pages(c.Limit, pageOfPlaces, func(n uint32, token string) (int, string, error) {
			answer, err := api.List(ctx, &pushmeshv1.ClaimServiceListRequest{Resource: c.Resource, Prefix: c.Prefix, Limit: n, PageToken: token})
			for _, place := range answer.GetPlaces() {
				if err := printPlace(t, place); err != nil {
					return 0, "", err
				}
			}
			return len(answer.GetPlaces()), answer.GetNextPageToken(), err
		})
		if err != nil {
			return err
		}
		return t.Flush()
	})
}

type claimRun struct {
	Resource  string        `arg:"" help:"Name of the resource, written like a topic."`
	Command   []string      `arg:"" help:"The command and its arguments, after --."`
	Owner     string        `placeholder:"NAME" help:"Owner of the claim. Default: USER@HOST and the process id, so that two runs exclude each other."`
	KillAfter time.Duration `default:"10s" placeholder:"D" help:"Time between SIGTERM and SIGKILL (${default}; a third of the hold's TTL at most)."`
	lineFlags
	cmdline.RouterFlag
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
func (c *claimRun) Run(ctx context.Context, stdio cmdline.IO) error {
	return withClaims(ctx, c.RouterFlag, func(ctx context.Context, api pushmeshv1.ClaimServiceClient) error {
		owner := cmp.Or(c.Owner, defaultOwner()+":"+strconv.Itoa(os.Getpid()))
		say := func(st *wirev1.ClaimState) {
			s := showClaim(st)
			fmt.Fprintf(stdio.Err, "pushmesh: %s: %s\n", c.Resource, s.text())
		}
		claim := c.claim(api, c.Resource, owner, say)
		h, err := claim.Get(ctx)
		var not *claimrun.NotYoursError
		switch {
		case errors.As(err, &not):
			fmt.Fprintln(stdio.Err, "pushmesh: "+err.Error())
			return cmdline.ErrNotHeld
		case err != nil:
			return err
		}
		cmd := exec.Command(c.Command[0], c.Command[1:]...) //nolint:noctx // it is what the user wants to run, and is stopped by signals
		cmd.Stdin, cmd.Stdout, cmd.Stderr = stdio.In, stdio.Out, stdio.Err
		exit, lost, err := claim.Run(ctx, h, cmd, c.KillAfter)
		switch {
		case lost != nil:
			fmt.Fprintln(stdio.Err, "pushmesh: the command was stopped: "+lost.Error())
			return cmdline.ExitError(ExitLost)
		case err != nil && cmd.ProcessState == nil:
			fmt.Fprintln(stdio.Err, "pushmesh: "+err.Error())
			return cmdline.ExitError(ExitNotStarted)
		case err != nil:
			fmt.Fprintln(stdio.Err, "pushmesh: "+cmdline.Explain(err))
		}
		if exit != 0 {
			return cmdline.ExitError(exit)
		}
		return nil
	})
}
