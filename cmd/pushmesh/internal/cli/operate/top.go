package operate

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/survey"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/top"
)

// Top is the command pushmesh top.
type Top struct {
	Once  bool          `help:"Print the tables once, with rates over --every, and exit; the default if the output is not a terminal."`
	Every time.Duration `default:"2s" placeholder:"D" help:"How often to refresh (${default})."`
	Sort  string        `enum:"name,load,delay" default:"name" help:"Order of --once: name, load or delay (${default})."`
	cmdline.RouterFlag
}

// Help of the command.
func (Top) Help() string {
	return `Asks a router for all nodes, and each node for its metrics over HTTP, so these ports must be reachable from here. Keys: q quit, s sort, p pause, ? help.

  pushmesh top
  pushmesh top --once --sort load --router 10.0.0.1:7401`
}

// Run shows the mesh.
func (c *Top) Run(ctx context.Context, stdio cmdline.IO) error {
	if c.Every < 100*time.Millisecond {
		return cmdline.Usage("--every is %v, it must be 100ms at least", c.Every)
	}
	options, err := c.DialOptions()
	if err != nil {
		return err
	}
	s, err := survey.New(c.Router, options...)
	if err != nil {
		return cmdline.Usage("--router: %v", err)
	}
	defer func() { _ = s.Close() }()
	ask := func(ctx context.Context) (*top.Reading, error) { return top.Read(ctx, s) }
	if out, ok := stdio.Out.(*os.File); ok && !c.Once && term.IsTerminal(int(out.Fd())) {
		return top.Run(ctx, ask, c.Every)
	}
	return c.once(ctx, ask, stdio.Out)
}

func (c *Top) once(ctx context.Context, ask top.Ask, out io.Writer) error {
	before, err := ask(ctx)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(c.Every):
	}
	now, err := ask(ctx)
	if err != nil {
		return err
	}
	order := map[string]top.Order{"name": top.ByName, "load": top.ByLoad, "delay": top.ByDelay}[c.Sort]
	_, err = fmt.Fprintln(out, strings.Join(top.Picture(now, before, order), "\n"))
	return err
}
