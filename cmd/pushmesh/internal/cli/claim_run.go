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
	Prefix   string `arg:"" optional:"" help:"Resources whose names begin so; all by default."`
	Resource string `help:"This resource alone."`
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
	Resource  string        `arg:"" help:"The resource, a name like that of a topic."`
	Command   []string      `arg:"" help:"The command and its arguments, after --."`
	Owner     string        `placeholder:"NAME" help:"Who holds it. Default: the user's name, @, the host's, and the process id, so that two runs exclude each other."`
	KillAfter time.Duration `default:"10s" placeholder:"D" help:"Between SIGTERM and SIGKILL (${default}; a third of the time of the hold at most)."`
	lineFlags
	routerFlag
}

func (claimRun) Help() string {
	return `Waits in the line (positions go to the standard error), runs the command while the claim is held, renews it at a third of its time, and releases it
when the command has ended. The command finds PUSHMESH_CLAIM_RESOURCE, PUSHMESH_CLAIM_OWNER and PUSHMESH_CLAIM_TOKEN in its environment: hand the token to
what the claim protects, and have that refuse smaller ones.

Where the claim is lost, or can't be renewed, the command is stopped before the hold can have run out: SIGTERM, and SIGKILL after --kill-after, to its whole process
group. What the command leaves in its group is killed when it ends. Signals go on to it. It runs in a process group of its own, and so can't read from a terminal.

Exit code: the command's, 128 and the signal that ended it; 124 where it was stopped since the claim was lost; 127 where it could not be started; 4 where
the claim was not got (--no-wait, --wait); 1 and 2 for other failures and wrong usage.

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
