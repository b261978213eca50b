package operate

import (
	"cmp"
	"context"
	"strings"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/internal/health"
)

type Health struct {
	URL string `arg:"" help:"Health URL of the process, like http://127.0.0.1:7480/readyz."`
}

func (Health) Help() string {
	return `For containers whose image has one binary and no shell. The binary of each tier has the same command.

  pushmesh health http://127.0.0.1:7480/readyz
  pushmesh health 'http://127.0.0.1:7481/readyz?verbose'`
}

// Run asks once.
func (c *Health) Run(ctx context.Context, _ cmdline.IO) error {
	if !strings.HasPrefix(c.URL, "http://") && !strings.HasPrefix(c.URL, "https://") {
		return cmdline.Usage("%q is not a URL: write it like http://%s/readyz", c.URL, cmp.Or(strings.TrimSuffix(c.URL, "/readyz"), "127.0.0.1:7480"))
	}
	return health.Probe(ctx, c.URL)
}
