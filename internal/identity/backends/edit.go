package backends

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/pushmesh/pushmesh/internal/identity/token"
)

// newFileMode is that of a backends file that Edit makes.
const newFileMode = 0o600

// ErrUnknown is what Revoke returns for an id that no key has.
var ErrUnknown = errors.New("no key has this id")

// Listed is a key as List tells of it.
type Listed struct {
	Key
	Backend string
	Roles   []string
}

// List returns the keys in a backends file, in its order.
func List(path string) (all []Listed, err error) {
	data, err := token.ReadFile(path, MaxFile)
	if err != nil {
		return nil, err
	}
	entries, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, e := range entries {
		for _, k := range e.Keys {
			all = append(all, Listed{k, e.Name, e.Roles})
		}
	}
	return all, nil
}

// Create adds a key of the backend name to a file, which is made if it is not there, and returns
// the text that calls with it. A backend that is new gets the roles; one that is there must be
// given none.
func Create(path, name string, roles []string, now, expires time.Time) (k Key, text string, err error) {
	if err := checkName(name); err != nil {
		return k, "", err
	}
	for _, r := range roles {
		if _, err := ParseRole(r); err != nil {
			return k, "", err
		}
	}
	if k, text, err = NewKey(now, expires); err != nil {
		return k, "", err
	}
	err = edit(path, true, func(list *yaml.Node) error {
		e := find(list, func(e *yaml.Node) bool { v := value(e, "name"); return v != nil && v.Value == name })
		switch {
		case e != nil && len(roles) > 0:
			return fmt.Errorf("backend %s is there already: leave --role out, and change its roles in the file", name)
		case e == nil && len(roles) == 0:
			return fmt.Errorf("backend %s is not there yet: say what it may do (--role)", name)
		case e == nil:
			e = &yaml.Node{}
			if err := e.Encode(map[string]any{}); err != nil {
				return err
			}
			e.Style = 0
			if err := put(e, "name", name); err != nil {
				return err
			}
			if err := put(e, "roles", roles); err != nil {
				return err
			}
			list.Content = append(list.Content, e)
			list.Style = 0
		}
		keys := value(e, "keys")
		if keys == nil || keys.Kind != yaml.SequenceNode {
			return put(e, "keys", []Key{k})
		}
		one := &yaml.Node{}
		if err := one.Encode(k); err != nil {
			return err
		}
		keys.Content = append(keys.Content, one)
		return nil
	})
	if err != nil {
		return Key{}, "", err
	}
	return k, text, nil
}

// Revoke takes a key out of a file. The backend stays.
func Revoke(path, id string) error {
	return edit(path, false, func(list *yaml.Node) error {
		for _, e := range list.Content {
			keys := value(e, "keys")
			if keys == nil {
				continue
			}
			before := len(keys.Content)
			keys.Content = slices.DeleteFunc(keys.Content, func(k *yaml.Node) bool { v := value(k, "id"); return v != nil && v.Value == id })
			if len(keys.Content) < before {
				return nil
			}
		}
		return fmt.Errorf("%w: %.40q", ErrUnknown, id)
	})
}

// Entries returns what a backends file has, in its order; one that is not there has nothing.
func Entries(path string) ([]Entry, error) {
	data, err := token.ReadFile(path, MaxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entries, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return entries, nil
}

// Put has a backend be what e says, but for its keys, which stay. The file and the backend are
// made if they are not there.
func Put(path string, e Entry) error {
	return edit(path, true, func(list *yaml.Node) error {
		n := find(list, func(n *yaml.Node) bool { v := value(n, "name"); return v != nil && v.Value == e.Name })
		if n == nil {
			n = &yaml.Node{Kind: yaml.MappingNode}
			if err := put(n, "name", e.Name); err != nil {
				return err
			}
			list.Content = append(list.Content, n)
			list.Style = 0
		}
		for _, f := range []struct {
			name  string
			value any
			empty bool
		}{
			{"roles", e.Roles, len(e.Roles) == 0},
			{"certificates", e.Certificates, len(e.Certificates) == 0},
			{"tokens", e.Tokens, len(e.Tokens) == 0},
			{"limits", e.Limits, e.Limits == Limits{}},
		} {
			if f.empty {
				drop(n, f.name)
				continue
			}
			if err := put(n, f.name, f.value); err != nil {
				return err
			}
		}
		return nil
	})
}

// Remove takes a backend out of a file, with its keys.
func Remove(path, name string) error {
	return edit(path, false, func(list *yaml.Node) error {
		list.Content = slices.DeleteFunc(list.Content, func(n *yaml.Node) bool { v := value(n, "name"); return v != nil && v.Value == name })
		return nil
	})
}

// drop takes a field out of a map.
func drop(m *yaml.Node, name string) {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == name {
			m.Content = slices.Delete(m.Content, i, i+2)
			return
		}
	}
}

// value is what a map has under a name; nil: nothing.
func value(m *yaml.Node, name string) *yaml.Node {
	if m.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == name {
			return m.Content[i+1]
		}
	}
	return nil
}

func put(m *yaml.Node, name string, v any) error {
	n := &yaml.Node{}
	if err := n.Encode(v); err != nil {
		return err
	}
	if have := value(m, name); have != nil {
		*have = *n
		return nil
	}
	m.Content = append(m.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: name}, n)
	return nil
}

func find(list *yaml.Node, is func(*yaml.Node) bool) *yaml.Node {
	for _, e := range list.Content {
		if is(e) {
			return e
		}
	}
	return nil
}

// edit changes the list in a file, whose comments, mode and owner stay: readers see the old file or
// the new one. No other process edits it meanwhile.
func edit(path string, create bool, change func(list *yaml.Node) error) error {
	if to, err := filepath.EvalSymlinks(path); err == nil {
		path = to // what a link names is replaced, and not the link
	}
	lock, err := os.Open(filepath.Dir(path)) // #nosec G304 -- the operator names it
	if err != nil {
		return err
	}
	defer lock.Close() // lets the lock go
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	mode, owner := fs.FileMode(newFileMode), (*syscall.Stat_t)(nil)
	data, err := token.ReadFile(path, MaxFile)
	switch {
	case errors.Is(err, fs.ErrNotExist) && create:
	case err != nil:
		return err
	default:
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		mode = info.Mode().Perm()
		owner, _ = info.Sys().(*syscall.Stat_t)
	}
	if _, err := decode(data); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	var doc yaml.Node
	if err := yaml.NewDecoder(bytes.NewReader(data)).Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: %w", path, err)
	}
	if doc.Kind == 0 || len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		doc = yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{{Kind: yaml.MappingNode}}}
	}
	list := value(doc.Content[0], "backends")
	if list == nil || list.Kind != yaml.SequenceNode {
		if err := put(doc.Content[0], "backends", []string{}); err != nil {
			return err
		}
		list = value(doc.Content[0], "backends")
	}
	if err := change(list); err != nil {
		return err
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(&doc), enc.Close()); err != nil {
		return err
	}
	after, err := decode(out.Bytes())
	if err != nil {
		return fmt.Errorf("%s would not be readable: %w", path, err)
	}
	for _, e := range after {
		if len(e.Keys) > maxOfEach {
			return fmt.Errorf("backend %s would have %d keys, %d at most: revoke one first", e.Name, len(e.Keys), maxOfEach)
		}
	}
	if len(after) > MaxBackends || out.Len() > MaxFile {
		return fmt.Errorf("%s would have %d backends and %d bytes, %d and %d at most", path, len(after), out.Len(), MaxBackends, MaxFile)
	}
	return replace(path, out.Bytes(), mode, owner)
}

// replace puts a file in the place of another, and gives it to the owner of that; nil: of nobody.
func replace(path string, data []byte, mode fs.FileMode, owner *syscall.Stat_t) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".backends-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if owner != nil && (int(owner.Uid) != os.Geteuid() || int(owner.Gid) != os.Getegid()) {
		if err = f.Chown(int(owner.Uid), int(owner.Gid)); err != nil {
			return errors.Join(fmt.Errorf("the file would not belong to whom it does, and routers might not read it: %w", err), f.Close())
		}
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
