package operate

import (
	"context"
	"log/slog"
	"time"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/doctor"
	"github.com/pushmesh/pushmesh/internal/tierauth"
)

// Doctor is the command pushmesh doctor.
type Doctor struct {
	JSON     bool          `name:"json" help:"Print one JSON object: sound, and findings with level, check, subject, found and advice."`
	NoProbe  bool          `help:"Don't publish the probe messages."`
	Skew     time.Duration `default:"500ms" placeholder:"D" help:"How far apart clocks may be without a warning (${default}); above 5s is a failure."`
	Patience time.Duration `default:"5s" placeholder:"D" help:"How long to wait for each node's answer and each probe message (${default})."`
	MeshCert string        `name:"mesh-cert" env:"PUSHMESH_MESH_CERT" placeholder:"FILE" help:"Certificate of an operator (pushmesh ca issue --tier operator), shown to stores and compute nodes, where these have certificates (PEM)."`
	MeshKey  string        `name:"mesh-key" env:"PUSHMESH_MESH_KEY" placeholder:"FILE" help:"Key of --mesh-cert (PEM)."`
	MeshCA   string        `name:"mesh-ca" env:"PUSHMESH_MESH_CA" placeholder:"FILE" help:"CA of the mesh (PEM)."`
	cmdline.RouterFlag
	cmdline.TokenFlag
}

// Help of the command.
func (Doctor) Help() string {
	return `Examines every node from this machine: reachability, readiness, versions, clocks, open files, NATS, the databases' settings (asked of the stores), and a
message through every router to every edge, durable and ephemeral. Each finding says what to do. The exit code is 1 if something failed.

  pushmesh doctor
  pushmesh doctor --router 10.0.0.1:7401 --json
  pushmesh doctor --token-file doctor.jwt

Where edges want a token, that of --token-file must allow to subscribe to room/+ and to + (the topics of the probe messages).`
}

// Run examines the mesh.
func (c *Doctor) Run(ctx context.Context, stdio cmdline.IO) error {
	if c.Skew <= 0 || c.Patience <= 0 {
		return cmdline.Usage("--skew is %v and --patience %v, both must be above 0", c.Skew, c.Patience)
	}
	token, err := c.Source(stdio.In)
	if err != nil {
		return err
	}
	dial, err := c.DialOptions()
	if err != nil {
		return err
	}
	flags := tierauth.Flags{MeshCert: c.MeshCert, MeshKey: c.MeshKey, MeshCA: c.MeshCA}
	if flags != (tierauth.Flags{}) {
		if err := flags.CheckTiers(); err != nil {
			return cmdline.Usage("%w", err)
		}
	}
	operator, err := tierauth.Open(tierauth.Config{Flags: flags, Tier: tierauth.Operator, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	r := doctor.Examine(ctx, doctor.Config{Operator: operator, Routers: c.Router, Dial: dial, Token: token, Skew: c.Skew, Probe: !c.NoProbe, Patience: c.Patience, Arrive: c.Patience})
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
