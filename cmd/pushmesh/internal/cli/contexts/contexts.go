// Package contexts has the commands about contexts: how to connect to meshes, kept under names.
package contexts

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
)

// Command is the command pushmesh context.
type Command struct {
	Add    add    `cmd:"" help:"Keep addresses, certificates and the token's file of a mesh under a name."`
	Use    use    `cmd:"" help:"Use a context from now on, in every command that names none."`
	List   list   `cmd:"" help:"List the contexts; a * is before the one that is used."`
	Show   show   `cmd:"" help:"Show the settings of a context."`
	Remove remove `cmd:"" help:"Remove a context."`
}

// Help of the command.
func (Command) Help() string {
	return `A context is a set of values for the flags that say how to connect. A command takes each value from its flag, else from the flag's variable in the
environment, else from the context: that of --context or PUSHMESH_CONTEXT, or the one that "context use" has set.

  pushmesh context add prod --edge edge.example:7400 --router router.example:7401 --tls-ca ca.pem --token-file prod.jwt
  pushmesh context use prod
  pushmesh --context staging sub room/7/chat

Contexts are in pushmesh/contexts.yaml of $XDG_CONFIG_HOME or ~/.config, which only its owner may read. They have names of files, not what is in them.`
}

type add struct {
	Name    string `arg:"" help:"Name of the context."`
	Use     bool   `help:"Use it from now on."`
	Replace bool   `help:"Replace the context of this name, if there is one."`
	connection
}

func (add) Help() string {
	return `Flags that are not given are not in the context. Names of files are kept as absolute ones.

  pushmesh context add prod --edge edge-1.example:7400,edge-2.example:7400 --tls --token-file prod.jwt --use`
}

// Run adds it.
func (c *add) Run(command *kong.Context, stdio cmdline.IO) error {
	if err := checkName(c.Name); err != nil {
		return err
	}
	s, err := given(command)
	if err != nil {
		return err
	}
	if err := c.check(s); err != nil {
		return err
	}
	err = change(func(f *file) error {
		if _, there := f.Contexts[c.Name]; there && !c.Replace {
			return cmdline.Usage("there is a context %s: --replace replaces it", c.Name)
		}
		f.Contexts[c.Name] = s
		if c.Use {
			f.Current = c.Name
		}
		return nil
	})
	if err == nil && c.Use {
		err = noteEnv(stdio, c.Name)
	}
	return err
}

// check refuses a context that no command could connect with.
func (c *add) check(s settings) error {
	if len(s) == 0 {
		return cmdline.Usage("the context is empty: give it --edge, --router or others of the flags in context add --help")
	}
	if s["token-file"] == "-" {
		return cmdline.Usage("--token-file - is standard input, which a context can't keep: name a file")
	}
	// a variable of the environment, which is in no context, may be wrong
	var errs []error
	if _, there := s["edge"]; there {
		errs = append(errs, c.EdgeFlag.Check())
	}
	if _, there := s["router"]; there {
		errs = append(errs, c.RouterFlag.Check())
	}
	return errors.Join(errs...)
}

// given is the flags of connections that the command line has.
func given(command *kong.Context) (settings, error) {
	flags, s := known(), settings{}
	for _, p := range command.Path {
		if p.Flag != nil && !p.Resolved && p.Flag.Name == secret {
			return nil, cmdline.Usage("--%s: contexts have names of files, not what is in them: put it into a file and give --router-token-file", secret)
		}
		if p.Flag == nil || p.Resolved || flags[p.Flag.Name] == nil {
			continue
		}
		value := p.Flag.Target.Interface()
		text := fmt.Sprint(value)
		if several, is := value.([]string); is {
			text = strings.Join(several, ",")
		}
		if isFile(p.Flag) && text != "" && text != "-" {
			var err error
			if text, err = filepath.Abs(text); err != nil {
				return nil, err
			}
		}
		s[p.Flag.Name] = text
	}
	return s, nil
}

type use struct {
	Name string `arg:"" optional:"" help:"Name of the context."`
	None bool   `help:"Use no context."`
}

// Run sets the current one.
func (c *use) Run(stdio cmdline.IO) error {
	if (c.Name == "") != c.None {
		return cmdline.Usage("it needs either the name of a context or --none")
	}
	err := change(func(f *file) error {
		if f.Current = c.Name; c.None {
			return nil
		}
		s, err := f.find(c.Name)
		if err != nil {
			return err
		}
		return NewResolver().check(c.Name, s)
	})
	if err != nil {
		return err
	}
	return noteEnv(stdio, c.Name)
}

// noteEnv says where the environment names another context than name.
func noteEnv(stdio cmdline.IO, name string) error {
	env := os.Getenv("PUSHMESH_CONTEXT")
	if env == "" || env == name {
		return nil
	}
	_, err := fmt.Fprintf(stdio.Err, "PUSHMESH_CONTEXT is set to %s, which is used as long as it is\n", env)
	return err
}

// open reads the file; used is the context that commands use.
func open() (f *file, used string, err error) {
	at, err := path()
	if err == nil {
		f, err = read(at)
	}
	if err != nil {
		return nil, "", err
	}
	return f, cmp.Or(os.Getenv("PUSHMESH_CONTEXT"), f.Current), nil
}

// shown is a context as JSON.
type shown struct {
	Name     string   `json:"name"`
	Used     bool     `json:"used"`
	Settings settings `json:"settings"`
}

type list struct{ cmdline.FormatFlag }

// Run lists them.
func (c *list) Run(stdio cmdline.IO) error {
	f, used, err := open()
	if err != nil {
		return err
	}
	t := c.Table(stdio.Out, "", "NAME", "EDGE", "ROUTER")
	for _, name := range f.names() {
		s, mark := f.Contexts[name], ""
		if name == used {
			mark = "*"
		}
		if err := t.Row(shown{name, name == used, s}, mark, name, cmdline.OrDash(s["edge"]), cmdline.OrDash(s["router"])); err != nil {
			return err
		}
	}
	return t.Flush()
}

type show struct {
	Name string `arg:"" optional:"" help:"Name of the context; by default the one that is used."`
	cmdline.FormatFlag
}

// Run shows it.
func (c *show) Run(stdio cmdline.IO) error {
	f, used, err := open()
	if err != nil {
		return err
	}
	name := cmp.Or(c.Name, used)
	if name == "" {
		return cmdline.Usage("no context is used: name one")
	}
	s, err := f.find(name)
	if err != nil {
		return err
	}
	if c.Format == "json" {
		return cmdline.WriteJSON(stdio.Out, shown{name, name == used, s})
	}
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\n", name)
	for _, setting := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(&b, "%s: %s\n", setting, s[setting])
	}
	_, err = fmt.Fprint(stdio.Out, b.String())
	return err
}

type remove struct {
	Name string `arg:"" help:"Name of the context."`
}

// Run removes it.
func (c *remove) Run(stdio cmdline.IO) error {
	wasUsed := false
	err := change(func(f *file) error {
		if _, err := f.find(c.Name); err != nil {
			return err
		}
		delete(f.Contexts, c.Name)
		if wasUsed = f.Current == c.Name; wasUsed {
			f.Current = ""
		}
		return nil
	})
	if err != nil || !wasUsed {
		return err
	}
	_, err = fmt.Fprintln(stdio.Err, "it was the context that is used: none is now")
	return err
}
