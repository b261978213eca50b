package cli

import (
	"context"
	"time"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/doctor"
)

type doctorCmd struct {
	JSON     bool          `name:"json" help:"Print one object: sound, and findings with level, check, subject, found and advice."`
	NoProbe  bool          `help:"Publish nothing."`
	Skew     time.Duration `default:"500ms" placeholder:"D" help:"How far clocks may be apart before it is told (${default}); above 5s it is a failure."`
	Patience time.Duration `default:"5s" placeholder:"D" help:"How long a node may take to answer, and a probe message to come (${default})."`
	routerFlag
}

func (doctorCmd) Help() string {
	return `Looks at every node from here: reachability, readiness, versions, clocks, open files, NATS, the databases' settings (asked of the stores), and a
message through every router to every edge, durable and ephemeral. Each finding says what to do. Exit code 1 where something failed.

  pushmesh doctor
  pushmesh doctor --router 10.0.0.1:7401 --json`
}

// Run examines the mesh.
func (c *doctorCmd) Run(ctx context.Context, stdio stdio) error {
	if c.Skew <= 0 || c.Patience <= 0 {
		return usage("--skew is %v and --patience %v, both must be above 0", c.Skew, c.Patience)
	}
	r := doctor.Examine(ctx, doctor.Config{Routers: c.Router, Skew: c.Skew, Probe: !c.NoProbe, Patience: c.Patience, Arrive: c.Patience})
	var err error
	if c.JSON {
		err = writeJSON(stdio.out, r)
	} else {
		err = r.Print(stdio.out)
	}
	if err == nil && !r.Sound {
		err = errReported
	}
	return err
}
