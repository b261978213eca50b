// Package settings reads a service's settings from flags and PUSHMESH_* variables, and reports all
// faults at once.
package settings

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Exit codes of every command.
const (
	ExitOK      = 0
	ExitFailure = 1
	ExitUsage   = 2
)

// ErrHelp says that help was asked for and printed: exit with ExitOK.
var ErrHelp = errors.New("help printed")

// UsageError is a fault of flags or variables: exit with ExitUsage.
type UsageError struct{ Err error }

// credentials are a user and a password, or a token, in a URL: what is wrong with a setting is told
// with its value, and goes into logs.
var credentials = regexp.MustCompile(`://[^/@\s"]*@`)

func (e *UsageError) Error() string {
	return credentials.ReplaceAllLiteralString(e.Err.Error(), "://"+Hidden+"@")
}
func (e *UsageError) Unwrap() error { return e.Err }

// Checker finds every fault of the settings, joined with errors.Join.
type Checker interface{ Check() error }

// file is the flag of the file of settings.
type file struct {
	Config string `name:"config" placeholder:"FILE" help:"File of settings, YAML: a line NAME: VALUE for each flag --NAME. Variables come before it, and flags before these."`
}

// Parse fills into, a pointer to a struct of kong fields, from a file that --config names, from
// variables named PUSHMESH_ and the flag's name, and from args; the later of these counts. Faults
// are a *UsageError that names every one of them.
func Parse(into Checker, name, description string, args []string, out io.Writer) error {
	_, err := parse(into, name, description, args, out)
	return err
}

// Model is the flags that Parse takes, as kong knows them.
func Model(into Checker, name, description string) (*kong.Application, error) {
	parser, err := kong.New(into, options(name, description)...)
	if err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	return parser.Model, nil
}

func options(name, description string) []kong.Option {
	return []kong.Option{kong.Name(name), kong.Description(description), kong.DefaultEnvars("PUSHMESH"), kong.Embed(&file{})}
}

// parsed is where settings came from.
type parsed struct {
	context *kong.Context
	path    string // of the file
	file    map[string]entry
	secrets map[string]bool // that were read from files
}

func parse(into Checker, name, description string, args []string, out io.Writer) (*parsed, error) {
	helped, read := false, false
	p := &parsed{path: configOf(args)}
	parser, err := kong.New(into, append(options(name, description), kong.Writers(out, out), kong.Exit(func(int) { helped = true }),
		kong.WithBeforeApply(func() error { read = true; return nil }))...)
	if err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	var faults error
	if p.path != "" {
		if p.file, faults = readFile(p.path, parser.Model.Flags); len(p.file) > 0 {
			if err := kong.Resolvers(resolver(p.file)).Apply(parser); err != nil {
				return nil, fmt.Errorf("settings: %w", err)
			}
		}
	}
	p.context, err = parser.Parse(args)
	if helped {
		return nil, ErrHelp
	}
	err = p.place(err, args)
	if err != nil && !read {
		// into is not filled: its other faults are not known
		return nil, &UsageError{errors.Join(faults, err)}
	}
	p.secrets = map[string]bool{}
	faults = errors.Join(faults, readSecrets(parser.Model.Flags, p.secrets))
	if err := errors.Join(faults, err, into.Check()); err != nil {
		return nil, &UsageError{err}
	}
	return p, nil
}

// place says where in the file a value is that a flag does not take.
func (p *parsed) place(err error, args []string) error {
	if err == nil {
		return nil
	}
	for name, e := range p.file {
		flag := "--" + name
		rest, ours := strings.CutPrefix(err.Error(), flag)
		given := slices.ContainsFunc(args, func(arg string) bool { return arg == flag || strings.HasPrefix(arg, flag+"=") })
		if ours && !given && (strings.HasPrefix(rest, ":") || strings.HasPrefix(rest, " ")) {
			return fmt.Errorf("%s:%d: %w", p.path, e.line, err)
		}
	}
	return err
}

// Line is one setting, and where its value is from: "default", "FILE:LINE", the name of a variable,
// or "--NAME". Secret values are hidden.
type Line struct{ Name, Value, From string }

// Hidden stands for the value of a secret.
const Hidden = "(hidden)"

// Explain reads settings as Parse does, and says of each what it is and where that is from. Fields
// with the tag secret are hidden.
func Explain(into Checker, name string, args []string) ([]Line, error) {
	p, err := parse(into, name, "", args, io.Discard)
	if err != nil {
		return nil, err
	}
	given := map[*kong.Value]bool{}
	for _, step := range p.context.Path {
		if step.Flag != nil && !step.Resolved {
			given[step.Flag.Value] = true
		}
	}
	var all []Line
	for _, f := range p.context.Flags() {
		if f.Name == "help" || f.Name == configFlag || p.secrets[f.Name] {
			continue // the last are said by the flag of the file
		}
		l := Line{Name: f.Name, Value: text(f), From: "default"}
		switch e, ok := p.file[f.Name]; {
		case given[f.Value]:
			l.From = "--" + f.Name
		case variable(f) != "":
			l.From = variable(f)
		case ok:
			l.From = fmt.Sprintf("%s:%d", p.path, e.line)
		}
		if f.Tag.Has("secret") {
			l.Value = hide(l.Value, f.Tag.Get("secret") == "url")
		}
		all = append(all, l)
	}
	return all, nil
}

// hide hides a secret, or what proves who one is in URLs that are separated by commas.
func hide(value string, urls bool) string {
	if value == "" || !urls {
		return strings.Repeat(Hidden, min(len(value), 1))
	}
	all := strings.Split(value, ",")
	for i, one := range all {
		at := strings.LastIndexByte(one, '@')
		if at < 0 {
			continue
		}
		// a user and a password, or a token alone; with a scheme or without
		scheme := ""
		if end := strings.Index(one[:at], "://"); end >= 0 {
			scheme = one[:end+len("://")]
		}
		all[i] = scheme + Hidden + one[at:]
	}
	return strings.Join(all, ",")
}

// text is a flag's value as a file would have it.
func text(f *kong.Flag) string {
	v := f.Target
	switch v.Kind() {
	case reflect.Slice:
	case reflect.Map:
		if v.Len() == 0 {
			return ""
		}
		fallthrough
	default:
		return fmt.Sprint(v.Interface())
	}
	var all []string
	for i := range v.Len() {
		all = append(all, fmt.Sprint(v.Index(i).Interface()))
	}
	return kong.JoinEscaped(all, ',')
}

// Require reports an empty required setting.
func Require(flag, value string) error {
	if value == "" {
		return fmt.Errorf("--%s is required", flag)
	}
	return nil
}

// Range reports a number out of bounds.
func Range[N int | int64 | float64](flag string, value, low, high N) error {
	if !(value >= low && value <= high) { //nolint:staticcheck // NaN is out of bounds, too
		return fmt.Errorf("--%s is %v, must be %v to %v", flag, value, low, high)
	}
	return nil
}

// ExitCode of an error returned by a command's run.
func ExitCode(err error) int {
	var usage *UsageError
	switch {
	case err == nil, errors.Is(err, ErrHelp):
		return ExitOK
	case errors.As(err, &usage):
		return ExitUsage
	}
	return ExitFailure
}
