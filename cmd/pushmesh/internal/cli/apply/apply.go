// Package apply has the command that makes of a mesh what a file says.
package apply

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cli/ranking"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/meshfile"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity/backends"
	"github.com/pushmesh/pushmesh/internal/strictyaml"
	"github.com/pushmesh/pushmesh/internal/trees"
)

// exitDifference is the exit code of a dry run that has found one.
const exitDifference = 2

// Command is the command pushmesh apply.
type Command struct {
	File     string   `short:"f" name:"file" placeholder:"FILE" help:"What the mesh shall have, YAML; - reads standard input. Paths in it begin at its folder."`
	DryRun   bool     `help:"Show what would change, and change nothing."`
	ExitCode bool     `help:"With --dry-run: exit code 2 where something would change."`
	Prune    []string `enum:"namespaces,models,teams,backends" placeholder:"KINDS" help:"Delete what the mesh has of these kinds (namespaces, models, teams, backends) and the file does not name. What is built in stays."`
	Yes      bool     `short:"y" help:"Delete, and lose messages, without asking."`
	Backends string   `placeholder:"FILE" help:"The backends file of the routers, in which the file's backends are put."`
	KeysDir  string   `placeholder:"DIR" help:"Write keys that are made to NAME.key in this folder, for the owner alone, and do not print them."`
	Export   bool     `help:"Print what the mesh has (and --backends) as such a file, and change nothing."`
	cmdline.RouterFlag
}

// Help of the command.
func (Command) Help() string {
	return `Models, namespaces, teams with their members, and backends become what the file says; the rest of the mesh stays. Where nothing is different,
nothing is done: applying a file twice does no harm. The whole file is checked before the first change. If a change fails, those before it stay (they are
printed), and the next run goes on. Changes that delete something, or lose messages, are asked for, or need --yes.

  pushmesh apply -f mesh.yaml --dry-run
  pushmesh apply -f mesh.yaml
  pushmesh apply -f mesh.yaml --prune namespaces,teams --yes
  pushmesh apply -f mesh.yaml --backends backends.yaml --keys-dir keys
  pushmesh apply --export > mesh.yaml

Exit codes of --dry-run --exit-code: 0 no difference, 1 failed, 2 a difference (or wrong usage).`
}

func (c *Command) check() error {
	switch {
	case c.Export == (c.File != ""):
		return cmdline.Usage("it needs either --file or --export")
	case c.Export && (c.DryRun || len(c.Prune) > 0 || c.Yes || c.KeysDir != ""):
		return cmdline.Usage("--export changes nothing: --dry-run, --prune, --yes and --keys-dir are not for it")
	case c.ExitCode && !c.DryRun:
		return cmdline.Usage("--exit-code is for --dry-run")
	case c.KeysDir != "" && c.Backends == "":
		return cmdline.Usage("--keys-dir needs --backends")
	}
	return nil
}

// Run applies the file.
func (c *Command) Run(ctx context.Context, stdio cmdline.IO) error {
	if err := c.check(); err != nil {
		return err
	}
	if c.Export {
		return c.export(ctx, stdio)
	}
	w, err := c.load(stdio.In)
	if err != nil {
		return err
	}
	conn, err := c.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	writes := &writer{apis: apisOf(conn), stdio: stdio, backends: c.Backends, keys: c.KeysDir}
	managed := func(team string) bool {
		return slices.ContainsFunc(w.file.Teams, func(t meshfile.Team) bool { return t.Managed && t.Team.GetName() == team })
	}
	if writes.read, err = writes.apis.read(ctx, w.file.Sections, managed); err != nil {
		return err
	}
	if writes.read.entries, err = c.entries(); err != nil {
		return err
	}
	p := w.plan(writes.read)
	if err := errors.Join(append(writes.placeForKeys(p.changes, w.file), strictyaml.Join(c.File, p.faults))...); err != nil {
		return err
	}
	if len(p.changes) == 0 {
		_, err := fmt.Fprintln(stdio.Out, "nothing to change")
		return err
	}
	if err := show(stdio.Out, p.changes); err != nil {
		return err
	}
	if c.DryRun {
		if c.ExitCode {
			return cmdline.ExitError(exitDifference)
		}
		return nil
	}
	if err := c.confirm(stdio, p.changes); err != nil {
		return err
	}
	if err := writes.do(ctx, p.changes); err != nil {
		return fmt.Errorf("not everything is done; the next run goes on: %w", err)
	}
	return nil
}

// load reads the file, and those that it names, and finds all of their faults.
func (c *Command) load(in io.Reader) (*wanted, error) {
	data, dir, err := c.data(in)
	if err != nil {
		return nil, err
	}
	f, faults := meshfile.Parse(data)
	w := &wanted{file: f, models: map[string]loaded{}, prune: map[string]bool{}, now: time.Now()}
	for i := range f.Models {
		m := &f.Models[i]
		if m.Path == "" {
			continue // which is a fault already
		}
		if w.models[m.Name], err = loadModel(dir, m); err != nil {
			faults = append(faults, strictyaml.At(m.Line, "models.%s: %w", m.Name, err))
		}
	}
	if len(f.Backends) > 0 && c.Backends == "" {
		faults = append(faults, strictyaml.At(f.Backends[0].Line,
			"backends are in a file of the routers, and not in the mesh: name it by --backends, or keep this section in a file of its own"))
	}
	errs := []error{strictyaml.Join(c.File, faults)}
	for _, kind := range c.Prune {
		w.prune[kind] = true
		if !f.Sections[kind] {
			errs = append(errs, fmt.Errorf("%s: --prune %s: there is no section %[2]s; an empty one (%[2]s: {}) would delete all of them", c.File, kind))
		}
	}
	return w, errors.Join(errs...)
}

// data of the file, and where paths in it begin.
func (c *Command) data(in io.Reader) (data []byte, dir string, err error) {
	dir = filepath.Dir(c.File)
	if c.File != "-" {
		f, err := os.Open(c.File) // #nosec G304 -- who runs the command names it
		if err != nil {
			return nil, "", cmdline.Usage("--file: %w", err)
		}
		defer f.Close()
		in = f
	} else if in == nil {
		return nil, "", cmdline.Usage("--file -: standard input is closed")
	}
	if data, err = io.ReadAll(io.LimitReader(in, meshfile.MaxFile+1)); err != nil {
		return nil, "", err
	}
	if len(data) > meshfile.MaxFile {
		return nil, "", fmt.Errorf("%s has more than %d bytes", c.File, meshfile.MaxFile)
	}
	return data, dir, nil
}

// loadModel reads a model as a router does.
func loadModel(dir string, m *meshfile.Model) (l loaded, err error) {
	l.path = m.Path
	if !filepath.IsAbs(l.path) {
		l.path = filepath.Join(dir, l.path)
	}
	f, err := os.Open(l.path) // #nosec G304 -- the file that is applied names it
	if err != nil {
		return l, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, ranking.MaxModel+1))
	switch {
	case err != nil:
		return l, err
	case len(data) == 0:
		return l, fmt.Errorf("%s is empty", m.Path)
	case len(data) > ranking.MaxModel:
		return l, fmt.Errorf("%s has more than %d bytes", m.Path, ranking.MaxModel)
	}
	parsed, err := trees.ParseNamed(data, m.Columns, trees.Limits{})
	if err != nil {
		return l, fmt.Errorf("%s: %s", m.Path, code.From(err).Message)
	}
	digest := sha256.Sum256(data)
	l.size, l.digest, l.columns = len(data), digest[:], parsed.Columns()
	return l, nil
}

// entries of the backends file; none where no flag names one.
func (c *Command) entries() ([]backends.Entry, error) {
	if c.Backends == "" {
		return nil, nil
	}
	return backends.Entries(c.Backends)
}

// show prints changes, and how many there are.
func show(out io.Writer, changes []change) error {
	count := map[rune]int{}
	for i := range changes {
		c := &changes[i]
		count[c.op]++
		if _, err := fmt.Fprintf(out, "%c %s\n", c.op, c.what); err != nil {
			return err
		}
		for _, line := range c.details {
			if _, err := fmt.Fprintf(out, "    %s\n", line); err != nil {
				return err
			}
		}
	}
	_, err := fmt.Fprintf(out, "%d to add, %d to change, %d to delete\n", count[added], count[changed], count[deleted])
	return err
}

// confirm asks before something is lost for good.
func (c *Command) confirm(stdio cmdline.IO, changes []change) error {
	var all []string
	for i := range changes {
		if changes[i].loses != "" {
			all = append(all, changes[i].loses)
		}
	}
	if len(all) == 0 || c.Yes {
		return nil
	}
	lost := strings.Join(all, "\n  ")
	if in, is := stdio.In.(*os.File); !is || c.File == "-" || !term.IsTerminal(int(in.Fd())) {
		return fmt.Errorf("nothing is done: this must be confirmed with --yes:\n  %s", lost)
	}
	fmt.Fprintf(stdio.Err, "  %s\nGo on? [y/N] ", lost)
	answer, err := bufio.NewReader(stdio.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if text := strings.ToLower(strings.TrimSpace(answer)); text != "y" && text != "yes" {
		return fmt.Errorf("nothing is done: the answer was %q", cmp.Or(text, "no"))
	}
	return nil
}
