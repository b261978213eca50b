package settings

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"

	"github.com/pushmesh/pushmesh/internal/strictyaml"
)

// mostFile is how large a file of settings may be, in bytes.
const mostFile = 1 << 20

// entry is what a file says of one flag.
type entry struct {
	value string
	line  int
}

// readFile reads a file of settings, whose keys are names of flags, and finds every fault.
func readFile(path string, flags []*kong.Flag) (map[string]entry, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, mostFile+1))
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	if len(data) > mostFile {
		return nil, fmt.Errorf("--config %s: the file has more than %d bytes", path, mostFile)
	}
	all, faults := parseFile(data, flags)
	return all, strictyaml.Join(path, faults)
}

// parseFile reads YAML.
func parseFile(data []byte, flags []*kong.Flag) (all map[string]entry, faults []strictyaml.Fault) {
	all = map[string]entry{}
	root, faults := strictyaml.Document(data)
	if root == nil {
		return all, faults // nothing but comments
	}
	if root.Kind != yaml.MappingNode {
		return nil, append(faults, strictyaml.At(root.Line, "it must have lines of the form NAME: VALUE, where NAME is that of a flag"))
	}
	fields, wrong := strictyaml.Fields(root)
	faults = append(faults, wrong...)
	for _, f := range fields {
		text, err := valueOf(f, flags)
		if err != nil {
			faults = append(faults, strictyaml.Fault{Line: f.Line, Err: err})
			continue
		}
		all[f.Name] = entry{text, f.Line}
	}
	return all, faults
}

// valueOf is the value of a line as its flag takes it.
func valueOf(f strictyaml.Field, flags []*kong.Flag) (string, error) {
	at := slices.IndexFunc(flags, func(one *kong.Flag) bool { return one.Name == f.Name })
	switch {
	case at < 0 || f.Name == "help" || f.Name == configFlag:
		return "", fmt.Errorf("there is no setting %.60q%s", f.Name, near(f.Name, flags))
	case f.Value.Kind == yaml.SequenceNode && !flags[at].IsSlice() && !flags[at].IsMap():
		return "", fmt.Errorf("%s is one value, not a list", f.Name)
	case flags[at].IsMap():
		return pairs(f.Value)
	}
	return scalars(f.Value, ',')
}

// pairs are the values NAME=VALUE of a flag that takes several, which may also be lines of their
// own.
func pairs(n *yaml.Node) (string, error) {
	if n.Kind != yaml.MappingNode {
		return scalars(n, ';')
	}
	var all []string
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Kind != yaml.ScalarNode || n.Content[i+1].Kind != yaml.ScalarNode {
			return "", errors.New("its lines must be of the form NAME: VALUE")
		}
		all = append(all, n.Content[i].Value+"="+n.Content[i+1].Value)
	}
	return kong.JoinEscaped(all, ';'), nil
}

// scalars is a value, or the values of a list, as a flag takes them.
func scalars(n *yaml.Node, separator rune) (string, error) {
	switch n.Kind {
	case yaml.ScalarNode:
		return strictyaml.Scalar(n)
	case yaml.SequenceNode:
		all, err := strictyaml.Scalars(n)
		return kong.JoinEscaped(all, separator), err
	}
	return "", errors.New("it must be a value or a list of values")
}

// near is the flag whose name is most like a word, for an error.
func near(word string, flags []*kong.Flag) string {
	var names []string
	for _, f := range flags {
		names = append(names, f.Name)
	}
	return strictyaml.Near(word, names)
}

// resolver gives flags what a file says of them, where no variable does.
type resolver map[string]entry

// Validate implements kong.Resolver.
func (resolver) Validate(*kong.Application) error { return nil }

// Resolve implements kong.Resolver.
func (r resolver) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if e, ok := r[flag.Name]; ok && variable(flag) == "" {
		return e.value, nil
	}
	return nil, nil //nolint:nilnil // as kong has it
}

// variable is the name of the variable that is set for a flag; "": none is.
func variable(flag *kong.Flag) string {
	for _, name := range flag.Envs {
		if _, ok := os.LookupEnv(name); ok {
			return name
		}
	}
	return ""
}

// configFlag names the file.
const configFlag = "config"

// configOf is the file that args name, or the variable; "": none.
func configOf(args []string) string {
	path := os.Getenv("PUSHMESH_CONFIG")
	for i, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--"+configFlag+"="); ok {
			path = value
		} else if arg == "--"+configFlag && i+1 < len(args) {
			path = args[i+1]
		}
	}
	return path
}

// readSecrets gives each flag that another one names a file for (the tag fileof) what is in the
// file, without the ends of lines after it, and adds their names to filled.
func readSecrets(flags []*kong.Flag, filled map[string]bool) error {
	var errs []error
	for _, from := range flags {
		path := ""
		if from.Tag.Has("fileof") {
			path = from.Target.String()
		}
		if path == "" {
			continue
		}
		to := flags[slices.IndexFunc(flags, func(f *kong.Flag) bool { return f.Name == from.Tag.Get("fileof") })]
		data, err := os.ReadFile(path)
		switch {
		case to.Target.String() != "":
			errs = append(errs, fmt.Errorf("--%s and --%s exclude each other", to.Name, from.Name))
		case err != nil:
			errs = append(errs, fmt.Errorf("--%s: %w", from.Name, err))
		case len(data) > mostFile:
			errs = append(errs, fmt.Errorf("--%s %s: the file has more than %d bytes", from.Name, path, mostFile))
		default:
			filled[to.Name] = true
			to.Target.SetString(strings.TrimRight(string(data), "\r\n"))
		}
	}
	return errors.Join(errs...)
}
