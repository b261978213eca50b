package contexts

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v3"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
)

// maxFile is the most bytes of the file of contexts.
const maxFile = 256 << 10

// settings are values of flags by the flags' names.
type settings map[string]string

// file is the file of contexts.
type file struct {
	// the one that is used unless another is named
	Current  string              `yaml:"current,omitempty"`
	Contexts map[string]settings `yaml:"contexts"`
}

// path is where contexts are kept: pushmesh/contexts.yaml in the folder for settings of the user
// ($XDG_CONFIG_HOME, ~/.config).
func path() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("contexts: %w", err)
	}
	return filepath.Join(dir, "pushmesh", "contexts.yaml"), nil
}

// read reads the file; one that is not there has no contexts.
func read(path string) (*file, error) {
	f := &file{Contexts: map[string]settings{}}
	in, err := os.Open(path) // #nosec G304 -- in the user's own folder
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, fmt.Errorf("contexts: %w", err)
	}
	defer in.Close()
	is, err := in.Stat()
	if err != nil {
		return nil, fmt.Errorf("contexts: %w", err)
	}
	if mode := is.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("%s has mode %04o: it is not used while others than its owner may read or change it (chmod 600 %[1]s)", path, mode)
	}
	data, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("contexts: %w", err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s is longer than %d bytes", path, maxFile)
	}
	if err := f.parse(data); err != nil {
		return nil, fmt.Errorf("%s is not a file of contexts: %w", path, err)
	}
	return f, nil
}

func (f *file) parse(data []byte) error {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(f); err != nil && !errors.Is(err, io.EOF) {
		return errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return errors.New("there is more than one document in it")
	}
	if f.Contexts == nil {
		f.Contexts = map[string]settings{}
	}
	return nil
}

// names of all contexts, sorted.
func (f *file) names() []string { return slices.Sorted(maps.Keys(f.Contexts)) }

// find returns a context.
func (f *file) find(name string) (settings, error) {
	s, there := f.Contexts[name]
	switch {
	case there:
		return s, nil
	case len(f.Contexts) == 0:
		return nil, cmdline.Usage("there is no context %q, nor any other: pushmesh context add makes one", name)
	}
	return nil, cmdline.Usage("there is no context %q: there are %s", name, strings.Join(f.names(), ", "))
}

var goodName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$`)

func checkName(name string) error {
	if !goodName.MatchString(name) {
		return cmdline.Usage("%q is no name of a context: it must be 1 to 64 letters, digits, dots, - and _, and begin with none of . and -", name)
	}
	return nil
}

// change reads the file, has it changed and writes it whole, while no other process does.
func change(how func(*file) error) error {
	at, err := path()
	if err != nil {
		return err
	}
	dir := filepath.Dir(at)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	lock, err := os.Open(dir) // #nosec G304 -- the user's own folder
	if err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	defer lock.Close() // lets the lock go
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("contexts: lock %s: %w", dir, err)
	}
	f, err := read(at)
	if err != nil {
		return err
	}
	if err := how(f); err != nil {
		return err
	}
	return f.write(at)
}

// write puts the file in place whole, for its owner alone.
func (f *file) write(path string) error {
	data, err := yaml.Marshal(f)
	if err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	if len(data) > maxFile {
		return fmt.Errorf("%s would be longer than %d bytes: remove a context first", path, maxFile)
	}
	next, err := os.CreateTemp(filepath.Dir(path), "contexts-*") // has mode 0600
	if err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	_, err = next.Write(data)
	err = errors.Join(err, next.Sync(), next.Close())
	if err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("contexts: %w", err), os.Remove(next.Name()))
	}
	return nil
}
