// Package config has the commands that look at files of settings.
package config

import (
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/tiers"
	"github.com/pushmesh/pushmesh/internal/settings"
)

// Command is the command pushmesh config.
type Command struct {
	Check Check `cmd:"" help:"Find every fault of a file of settings, without starting anything."`
	Print Print `cmd:"" help:"Print all settings of a node as it would have them, and where each is from."`
}

// Check is the command pushmesh config check.
type Check struct {
	File string `arg:"" placeholder:"FILE" help:"File of settings (YAML)."`
	Tier string `required:"" placeholder:"TIER" help:"Whose settings they are: edge, router, store or compute."`
}

// Help of the command.
func (Check) Help() string {
	return `Reads the file as a node with --config does, with the variables PUSHMESH_* that are set here, and checks what comes of it. Files that it names are not opened.

  pushmesh config check /etc/pushmesh/edge.yaml --tier edge`
}

// Run looks for faults.
func (c *Check) Run(stdio cmdline.IO) error {
	if _, err := explain(c.Tier, []string{"--config=" + c.File}); err != nil {
		return err
	}
	_, err := fmt.Fprintln(stdio.Out, "no fault")
	return err
}

// Print is the command pushmesh config print.
type Print struct {
	Tier    string   `required:"" placeholder:"TIER" help:"Whose settings: edge, router, store or compute."`
	Config  string   `placeholder:"FILE" help:"File of settings (YAML)."`
	Changed bool     `help:"Only settings that are not the default."`
	Flags   []string `arg:"" optional:"" passthrough:"" help:"Flags of the node, after --."`
}

// Help of the command.
func (Print) Help() string {
	return `Prints a file of settings that says the same as the file, the variables PUSHMESH_* that are set here, and the flags together. Secrets are hidden.

  pushmesh config print --tier edge --config /etc/pushmesh/edge.yaml
  pushmesh config print --tier store --changed -- --db-file /run/secrets/db --writers 4`
}

// Run prints settings.
func (c *Print) Run(stdio cmdline.IO) error {
	args := c.Flags
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if c.Config != "" {
		args = append([]string{"--config=" + c.Config}, args...)
	}
	all, err := explain(c.Tier, args)
	if err != nil {
		return err
	}
	for _, l := range all {
		if c.Changed && l.From == "default" {
			continue
		}
		value := []byte("''")
		if l.Value != "" {
			if value, err = yaml.Marshal(&yaml.Node{Kind: yaml.ScalarNode, Value: l.Value}); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintf(stdio.Out, "%s: %s # %s\n", l.Name, strings.TrimSuffix(string(value), "\n"), l.From); err != nil {
			return err
		}
	}
	return nil
}

// explain has an error for each fault on a line of its own.
func explain(tier string, args []string) ([]settings.Line, error) {
	all, err := tiers.Explain(tier, args)
	var usage *settings.UsageError
	if errors.As(err, &usage) {
		return nil, fmt.Errorf("settings of the %s:\n%w", tier, usage.Err)
	}
	return all, err
}
