// Package claims has the commands that claim resources.
package claims

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/claimrun"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

type Command struct {
	Acquire claimAcquire `cmd:"" help:"Claim a resource: get a hold of it, or a place in its line."`
	Renew   claimRenew   `cmd:"" help:"Extend a hold: its TTL begins again."`
	Release claimRelease `cmd:"" help:"End a hold."`
	Leave   claimLeave   `cmd:"" help:"Give up a place in the line."`
	Check   claimCheck   `cmd:"" help:"Show the state of the owner's claim, or who holds the resource."`
	Watch   claimWatch   `cmd:"" help:"Print the state of a claim, and every change of it."`
	List    claimList    `cmd:"" help:"Show the claims that hold resources or wait for them."`
	Run     claimRun     `cmd:"" help:"Run a command while holding a resource."`
}

func (Command) Help() string {
	return `A resource is any name that could be a topic. One owner holds it at a time, unless the policy of its namespace allows more; others wait in a line.

  pushmesh claim acquire printer/3 --owner ann --ttl 30s
  pushmesh claim renew printer/3 --owner ann --token 4294967297
  pushmesh claim release printer/3 --owner ann --token 4294967297
  pushmesh claim list printer
  pushmesh claim run nightly/report -- ./report.sh --all

Exit code 4: the claim is not held (acquire got a place in the line or nothing, because others hold the resource; or the token given to renew or release belongs to a hold that has ended).`
}

// resourceArg is the resource and the owner of commands about a place.
type resourceArg struct {
	Resource string `arg:"" help:"Name of the resource, written like a topic."`
	Owner    string `env:"PUSHMESH_CLAIM_OWNER" placeholder:"NAME" help:"Owner of the claim. Default: USER@HOST."`
	cmdline.RouterFlag
	cmdline.FormatFlag
}

func (a *resourceArg) owner() string { return cmp.Or(a.Owner, defaultOwner()) }

func defaultOwner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return cmp.Or(os.Getenv("USER"), os.Getenv("LOGNAME"), "uid-"+fmt.Sprint(os.Getuid())) + "@" + host
}

// tokenFlag is of commands that need a hold.
type tokenFlag struct {
	Token uint64 `env:"PUSHMESH_CLAIM_TOKEN" required:"" placeholder:"N" help:"Token of the hold, as acquire printed it."`
}

// lineFlags say how to wait in line.
type lineFlags struct {
	TTL      time.Duration `name:"ttl" placeholder:"D" help:"How long the hold lasts unless it is renewed. Default: as the policy says, or 30s."`
	Priority uint32        `placeholder:"N" help:"Priority, 0 to 9: claims of a higher one are granted first."`
	Wait     time.Duration `placeholder:"D" help:"Leave the line after this time. Default: as the policy says."`
	NoWait   bool          `help:"Don't wait in the line if others hold the resource."`
}

type claimAcquire struct {
	resourceArg
	lineFlags
	Block bool `help:"Wait in the line until the claim is granted, and print each change of the position. Ctrl-C leaves the line."`
}

func (claimAcquire) Help() string {
	return `Prints GRANTED with the token, or QUEUED with the position, and ends at once. An owner in the line must run check every few seconds to keep its
place, or use --block. If the owner holds the resource already, it is granted again with the same token.

  pushmesh claim acquire printer/3 --owner ann --ttl 1m
  pushmesh claim acquire printer/3 --no-wait --format json
  pushmesh claim acquire printer/3 --block --wait 10m && print && pushmesh claim release printer/3 --token …`
}

// Run acquires.
func (c *claimAcquire) Run(ctx context.Context, stdio cmdline.IO) error {
	return withClaims(ctx, c.RouterFlag, func(ctx context.Context, api pushmeshv1.ClaimServiceClient) error {
		say := func(st *wirev1.ClaimState) { _ = c.printState(stdio.Out, st) }
		if c.Block {
			h, err := c.claim(api, c.Resource, c.owner(), say).Get(ctx)
			var not *claimrun.NotYoursError
			switch {
			case errors.As(err, &not):
				return errors.Join(c.printState(stdio.Out, not.State), cmdline.ErrNotHeld)
			case err != nil:
				return err
			}
			return c.printState(stdio.Out, h.State)
		}
		ctx, cancel := context.WithTimeout(ctx, cmdline.CallTimeout)
		defer cancel()
		answer, err := api.Acquire(ctx, &pushmeshv1.AcquireRequest{
			Resource: c.Resource, Owner: c.owner(), Ttl: cmdline.Duration(c.TTL), Priority: c.Priority, Wait: cmdline.Duration(c.Wait), NoWait: c.NoWait,
		})
		return c.end(stdio, answer.GetState(), err, wirev1.ClaimState_STATE_GRANTED)
	})
}

// claim is what these flags want.
func (f *lineFlags) claim(api pushmeshv1.ClaimServiceClient, resource, owner string, say func(*wirev1.ClaimState)) *claimrun.Claim {
	return &claimrun.Claim{API: api, Resource: resource, Owner: owner, TTL: f.TTL, Wait: f.Wait, Priority: f.Priority, NoWait: f.NoWait, Say: say}
}

type claimRenew struct {
	resourceArg
	tokenFlag
	TTL time.Duration `name:"ttl" placeholder:"D" help:"How long the hold lasts from now on. Default: as it was acquired."`
}

// Run renews.
func (c *claimRenew) Run(ctx context.Context, stdio cmdline.IO) error {
	return c.call(ctx, stdio, wirev1.ClaimState_STATE_GRANTED, func(ctx context.Context, api pushmeshv1.ClaimServiceClient) (*wirev1.ClaimState, error) {
		answer, err := api.Renew(ctx, &pushmeshv1.RenewRequest{Resource: c.Resource, Owner: c.owner(), Token: c.Token, Ttl: cmdline.Duration(c.TTL)})
		return answer.GetState(), err
	})
}

type claimRelease struct {
	resourceArg
	tokenFlag
	Successor string `placeholder:"OWNER" help:"Owner who gets the resource next, before all others in the line."`
}

// Run releases.
func (c *claimRelease) Run(ctx context.Context, stdio cmdline.IO) error {
	return c.call(ctx, stdio, wirev1.ClaimState_STATE_RELEASED, func(ctx context.Context, api pushmeshv1.ClaimServiceClient) (*wirev1.ClaimState, error) {
		answer, err := api.Release(ctx, &pushmeshv1.ReleaseRequest{Resource: c.Resource, Owner: c.owner(), Token: c.Token, Successor: c.Successor})
		return answer.GetState(), err
	})
}

type claimLeave struct{ resourceArg }

// Run leaves the line.
func (c *claimLeave) Run(ctx context.Context, stdio cmdline.IO) error {
	return c.call(ctx, stdio, anyState, func(ctx context.Context, api pushmeshv1.ClaimServiceClient) (*wirev1.ClaimState, error) {
		answer, err := api.Leave(ctx, &pushmeshv1.LeaveRequest{Resource: c.Resource, Owner: c.owner()})
		return answer.GetState(), err
	})
}

type claimCheck struct{ resourceArg }

func (claimCheck) Help() string {
	return `Tells the mesh that the owner still waits, and accepts the resource if it is offered now. The exit code is 0 whatever the state is.`
}

// Run checks.
func (c *claimCheck) Run(ctx context.Context, stdio cmdline.IO) error {
	return c.call(ctx, stdio, anyState, func(ctx context.Context, api pushmeshv1.ClaimServiceClient) (*wirev1.ClaimState, error) {
		answer, err := api.Check(ctx, &pushmeshv1.CheckRequest{Resource: c.Resource, Owner: c.owner()})
		return answer.GetState(), err
	})
}

// anyState is as good as any other.
const anyState = wirev1.ClaimState_State(-1)

func (a *resourceArg) call(
	ctx context.Context, stdio cmdline.IO, want wirev1.ClaimState_State, do func(context.Context, pushmeshv1.ClaimServiceClient) (*wirev1.ClaimState, error),
) error {
	return cmdline.Call(ctx, a.RouterFlag, cmdline.CallTimeout, pushmeshv1.NewClaimServiceClient, func(ctx context.Context, api pushmeshv1.ClaimServiceClient) error {
		st, err := do(ctx, api)
		return a.end(stdio, st, err, want)
	})
}

// end prints an answer. Another state than the one wanted ends with ExitNotHeld.
func (a *resourceArg) end(stdio cmdline.IO, st *wirev1.ClaimState, err error, want wirev1.ClaimState_State) error {
	if code.Of(err) == wirev1.Code_CODE_NOT_HELD {
		fmt.Fprintln(stdio.Err, "pushmesh: "+cmdline.Explain(err))
		return cmdline.ErrNotHeld
	}
	if err != nil {
		return err
	}
	if err := a.printState(stdio.Out, st); err != nil || want == anyState || st.GetState() == want {
		return err
	}
	return cmdline.ErrNotHeld
}

type claimWatch struct {
	resourceArg
	Nobody bool `help:"Watch who holds the resource, instead of the owner's claim."`
}

func (claimWatch) Help() string {
	return `Prints until it is interrupted. While it runs, an owner that waits keeps its place, but must accept a grant itself, with renew, within the policy's offer_ttl.`
}

// Run prints what comes.
func (c *claimWatch) Run(ctx context.Context, stdio cmdline.IO) error {
	return withClaims(ctx, c.RouterFlag, func(ctx context.Context, api pushmeshv1.ClaimServiceClient) error {
		req := &pushmeshv1.WatchRequest{Resource: c.Resource, Owner: c.owner()}
		if c.Nobody {
			req.Owner = ""
		}
		return cmdline.Again(ctx, stdio, func(e *code.Error) bool { return code.Retryable(e.Code) }, func() error { return c.watch(ctx, stdio, api, req) })
	})
}

func (c *claimWatch) watch(ctx context.Context, stdio cmdline.IO, api pushmeshv1.ClaimServiceClient, req *pushmeshv1.WatchRequest) error {
	stream, err := api.Watch(ctx, req, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	for {
		answer, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := c.printState(stdio.Out, answer.GetState()); err != nil {
			return err
		}
	}
}

func withClaims(ctx context.Context, f cmdline.RouterFlag, call func(context.Context, pushmeshv1.ClaimServiceClient) error) error {
	return cmdline.Call(ctx, f, 0, pushmeshv1.NewClaimServiceClient, call)
}
