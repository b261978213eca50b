package contexts

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
)

// Flag is the flag that names a context.
type Flag struct {
	InContext string `name:"context" env:"PUSHMESH_CONTEXT" placeholder:"NAME" help:"Connect as this context says (pushmesh context --help)."`
}

// connection is the flags that say how to connect to a mesh, which contexts have values of.
type connection struct {
	cmdline.EdgeFlag
	cmdline.RouterFlag
	cmdline.TokenFlag
}

// secret is a flag of connections that no context has a value of.
const secret = "router-token"

// known returns the flags that contexts have values of, by their names.
func known() map[string]*kong.Flag {
	parser, err := kong.New(&connection{}, kong.NoDefaultHelp())
	if err != nil {
		panic(fmt.Sprintf("contexts: %v", err)) // a fault of the program
	}
	all := map[string]*kong.Flag{}
	for _, f := range parser.Model.Flags {
		if f.Name != secret {
			all[f.Name] = f
		}
	}
	return all
}

// isFile reports whether a flag names a file.
func isFile(f *kong.Flag) bool { return f.PlaceHolder == "FILE" }

// Resolver is a kong.Resolver that gives flags of connections the values of a context, where
// neither the command line nor the environment has any.
type Resolver struct {
	known  map[string]*kong.Flag
	loaded bool
	values settings
	err    error
}

// NewResolver makes one for one command line.
func NewResolver() *Resolver { return &Resolver{known: known()} }

// Validate is of kong.Resolver.
func (*Resolver) Validate(*kong.Application) error { return nil }

// Resolve is of kong.Resolver. Faults of contexts are those that Err returns: they are of no flag.
func (r *Resolver) Resolve(command *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if r.known[flag.Name] == nil || apart(command) {
		return nil, nil
	}
	for _, name := range flag.Envs {
		if _, set := os.LookupEnv(name); set {
			return nil, nil
		}
	}
	r.load(command)
	if value, there := r.values[flag.Name]; there && r.err == nil {
		return value, nil
	}
	return nil, nil
}

// Err returns what is wrong with the context that command would use.
func (r *Resolver) Err(command *kong.Context) error {
	if named(command) == nil {
		return r.err
	}
	if apart(command) || !slices.ContainsFunc(command.Flags(), func(f *kong.Flag) bool { return r.known[f.Name] != nil }) {
		if slices.ContainsFunc(command.Path, func(p *kong.Path) bool { return p.Flag != nil && p.Flag == named(command) }) {
			return cmdline.Usage("--context has no effect here: %s connects to no mesh", command.Command())
		}
		return nil
	}
	if command.FlagValue(named(command)) != "" {
		r.load(command)
	}
	return r.err
}

// apart reports whether a command's flags are not about the connection that it makes.
func apart(command *kong.Context) bool {
	switch first, rest, _ := strings.Cut(command.Command(), " "); first {
	case "", "context", "key", "ca":
		return true
	case "auth":
		return strings.HasPrefix(rest, "explain")
	}
	return false
}

// named is the flag --context.
func named(command *kong.Context) *kong.Flag {
	for _, f := range command.Model.Flags {
		if f.Name == "context" {
			return f
		}
	}
	return nil
}

func (r *Resolver) load(command *kong.Context) {
	if r.loaded {
		return
	}
	r.loaded = true
	name := ""
	if f := named(command); f != nil {
		name, _ = command.FlagValue(f).(string)
	}
	r.values, r.err = r.context(name)
}

// context returns the settings of a context; "": of the current one, if there is any.
func (r *Resolver) context(name string) (settings, error) {
	at, err := path()
	if err != nil {
		if name == "" {
			return nil, nil // a process without a home has no contexts
		}
		return nil, err
	}
	f, err := read(at)
	if err != nil {
		return nil, err
	}
	if name == "" {
		if name = f.Current; name == "" {
			return nil, nil
		}
	}
	s, err := f.find(name)
	if err != nil {
		return nil, err
	}
	return s, r.check(name, s)
}

// check refuses settings that mean nothing here: they might be what keeps a connection safe.
func (r *Resolver) check(name string, s settings) error {
	for setting := range s {
		if r.known[setting] == nil {
			var all []string
			for one := range r.known {
				all = append(all, one)
			}
			slices.Sort(all)
			return cmdline.Usage("context %s has a setting %q, which is not known: there are %s", name, setting, strings.Join(all, ", "))
		}
	}
	return nil
}
