package operate

import (
	"context"
	"time"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/doctor"
)

type Doctor struct {
	JSON     bool          `name:"json" help:"Print one JSON object: sound, and findings with level, check, subject, found and advice."`
	NoProbe  bool          `help:"Don't publish the probe messages."`
	Skew     time.Duration `default:"500ms" placeholder:"D" help:"How far apart clocks may be without a warning (${default}); above 5s is a failure."`
	Patience time.Duration `default:"5s" placeholder:"D" help:"How long to wait for each node's answer and each probe message (${default})."`
	cmdline.RouterFlag
}

func (Doctor) Help() string {
	return `Examines every node from this machine: reachability, readiness, versions, clocks, open files, NATS, the databases' settings (asked of the stores), and a
message through every router to every edge, durable and ephemeral. Each finding says what to do. The exit code is 1 if something failed.

  pushmesh doctor
  pushmesh doctor --router 10.0.0.1:7401 --json`
}

// Run examines the mesh.
func (c *Doctor) Run(ctx context.Context, stdio cmdline.IO) error {
	if c.Skew <= 0 || c.Patience <= 0 {
		return cmdline.Usage("--skew is %v and --patience %v, both must be above 0", c.Skew, c.Patience)
	}
	r := doctor.Examine(ctx, doctor.Config{Routers: c.Router, Skew: c.Skew, Probe: !c.NoProbe, Patience: c.Patience, Arrive: c.Patience})
	var err error
	if c.JSON {
		err = cmdline.WriteJSON(stdio.Out, r)
	} else {
		err = r.Print(stdio.Out)
	}
	if err == nil && !r.Sound {
		err = cmdline.ErrReported
	}
	return err
}
