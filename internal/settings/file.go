package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
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
	all, errs := parseFile(data, flags)
	for i, err := range errs {
		errs[i] = fmt.Errorf("%s:%w", path, err)
	}
	return all, errors.Join(errs...)
}

// parseFile reads YAML. Each error begins with the line.
func parseFile(data []byte, flags []*kong.Flag) (all map[string]entry, errs []error) {
	all = map[string]entry{}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return all, nil // nothing but comments
	case err != nil:
		return nil, []error{fmt.Errorf(" %w", err)} // which names the line
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		errs = append(errs, errors.New("1: there must be one document"))
	}
	root := document.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, append(errs, fmt.Errorf("%d: it must have lines of the form NAME: VALUE, where NAME is that of a flag", root.Line))
	}
	for i := 0; i < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		flag := slices.IndexFunc(flags, func(f *kong.Flag) bool { return f.Name == key.Value })
		var text string
		var err error
		switch was, twice := all[key.Value]; {
		case key.Kind != yaml.ScalarNode:
			err = errors.New("a name must be a word")
		case flag < 0 || key.Value == "help" || key.Value == configFlag:
			err = fmt.Errorf("there is no setting %.60q%s", key.Value, near(key.Value, flags))
		case twice:
			err = fmt.Errorf("%s is there twice, first in line %d", key.Value, was.line)
		case value.Kind == yaml.SequenceNode && !flags[flag].IsSlice() && !flags[flag].IsMap():
			err = fmt.Errorf("%s is one value, not a list", key.Value)
		case flags[flag].IsMap():
			text, err = pairs(value)
		default:
			text, err = scalars(value, ',')
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%d: %w", key.Line, err))
			continue
		}
		all[key.Value] = entry{text, key.Line}
	}
	return all, errs
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
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return "", errors.New("it has no value: leave the line out, or write '' for an empty one")
	case n.Kind == yaml.ScalarNode:
		return n.Value, nil
	case n.Kind == yaml.SequenceNode:
		var all []string
		for _, one := range n.Content {
			if one.Kind != yaml.ScalarNode {
				return "", errors.New("a list must be of values")
			}
			if one.Tag == "!!null" {
				return "", errors.New("an item of the list has no value")
			}
			all = append(all, one.Value)
		}
		return kong.JoinEscaped(all, separator), nil
	}
	return "", errors.New("it must be a value or a list of values")
}

// near is the flag whose name is most like a word, for an error.
func near(word string, flags []*kong.Flag) string {
	best, least := "", 4
	for _, f := range flags {
		if d := distance(word, f.Name, least); d < least {
			best, least = f.Name, d
		}
	}
	if best == "" {
		return ""
	}
	return ": did you mean " + best + "?"
}

// distance is how many letters of a must change to make b, or at least most.
func distance(a, b string, most int) int {
	if len(a) > len(b)+most || len(b) > len(a)+most {
		return most
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := before
			if a[i] != b[j] {
				cost++
			}
			before = row[j+1]
			row[j+1] = min(cost, row[j]+1, before+1)
		}
	}
	return row[len(b)]
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
