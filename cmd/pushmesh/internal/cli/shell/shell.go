// Package shell has the commands that shells, and readers of manual pages, are served by.
package shell

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/completion"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/manual"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/tiers"
	"github.com/pushmesh/pushmesh/internal/settings"
)

// Completion is the command pushmesh completion.
type Completion struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help of the command.
func (Completion) Help() string {
	return `Prints a script that has the shell complete commands, flags and values of pushmesh.

  source <(pushmesh completion bash)                 # in ~/.bashrc; bash 4.4 or newer
  source <(pushmesh completion zsh)                  # in ~/.zshrc, after compinit
  pushmesh completion fish | source                  # in ~/.config/fish/config.fish`
}

// Run prints the script.
func (c *Completion) Run(stdio cmdline.IO) error {
	_, err := fmt.Fprint(stdio.Out, completion.Script(c.Shell))
	return err
}

// CompleteWords is the command that the scripts call.
type CompleteWords struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

// Run prints a candidate a line, with its help after a tab.
func (c *CompleteWords) Run(stdio cmdline.IO, parsed *kong.Context) error {
	words, app := c.Words, parsed.Model
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	var all []completion.Candidate
	if len(words) > 1 && !tiers.Command(words) {
		tier, err := tiers.Model(words[0])
		if err != nil {
			return err
		}
		if tier != nil && len(words) == 2 { // flags of a node, or a command about the tier
			all = completion.Of(app, words)
		}
		if tier != nil {
			words, app = words[1:], tier
		}
	}
	all = append(all, completion.Of(app, words)...)
	if len(words) == 1 && app == parsed.Model {
		all = slices.DeleteFunc(all, func(c completion.Candidate) bool { return tiers.Named(c.Word) != nil })
		for name := range strings.SplitSeq(tiers.Names, ",") {
			if strings.HasPrefix(name, words[0]) {
				all = append(all, completion.Candidate{Word: name, Help: tiers.Does(name)})
			}
		}
	}
	for _, one := range all {
		help, _, _ := strings.Cut(one.Help, "\n")
		if _, err := fmt.Fprintf(stdio.Out, "%s\t%s\n", one.Word, help); err != nil {
			return err
		}
	}
	return nil
}

// pageMode is that of manual pages.
const pageMode = 0o644

// Manual is the command that writes manual pages, for packages.
type Manual struct {
	Dir string `arg:"" help:"Folder to write them to."`
}

// Run writes a page of all, one of each command, and one of each tier.
func (c *Manual) Run(parsed *kong.Context) error {
	pages, names := map[string]string{}, []string{}
	for _, node := range parsed.Model.Children {
		prefix, of := "pushmesh-", []*kong.Node{node}
		if tiers.Named(node.Name) != nil { // the page of that name is the node's
			prefix, of = "pushmesh-"+node.Name+"-", node.Children
		}
		for _, node := range of {
			if !node.Hidden {
				name := prefix + node.Name
				names = append(names, name)
				pages[name] = manual.Page(parsed.Model, node, name, settings.Version(), []string{"pushmesh"})
			}
		}
	}
	for tier := range strings.SplitSeq(tiers.Names, ",") {
		app, err := tiers.Model(tier)
		if err != nil {
			return err
		}
		app.Name = "pushmesh " + tier
		name := "pushmesh-" + tier
		names = append(names, name)
		pages[name] = manual.Page(app, nil, name, settings.Version(), []string{"pushmesh"})
	}
	pages["pushmesh"] = manual.Page(parsed.Model, nil, "pushmesh", settings.Version(), names)
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join(c.Dir, name+".1"), []byte(text), pageMode); err != nil {
			// #nosec G306 -- everybody may read them
			return err
		}
	}
	return nil
}
