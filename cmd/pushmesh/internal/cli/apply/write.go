package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cli/ranking"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/meshfile"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity/backends"
	"github.com/pushmesh/pushmesh/internal/team"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const (
	// mostNames is how many bytes the names of users in one call have as JSON, less than a router
	// takes.
	mostNames = 64 << 10
	// modelTime is how long a model may take to be sent, checked and stored.
	modelTime = 2 * time.Minute
	// keyMode is that of files with keys.
	keyMode = 0o600
)

// errChanged says that somebody else changes the mesh at the same time.
var errChanged = errors.New("somebody else has changed it since it was read: run the command again")

// writer does the steps of a plan.
type writer struct {
	apis  *apis
	stdio cmdline.IO
	read  *mesh
	// backends is the backends file, keys the folder of files with keys; "": keys are printed.
	backends, keys string
	// teams as they were before the first one was put; nil: that is to come.
	teams map[string]*pushmeshv1.Team
}

// calls are users as they are named in one call each.
func calls(users []string) (all [][]string) {
	var some []string
	size := 0
	for _, user := range users {
		text, _ := json.Marshal(user) // a string always can be
		if len(some) == team.MaxUsers || size+len(text) > mostNames {
			all, some, size = append(all, some), nil, 0
		}
		some, size = append(some, user), size+len(text)+1
	}
	if some != nil {
		all = append(all, some)
	}
	return all
}

// do the steps in the order of their phases, and say what is done. What would be too much before
// members are removed is tried again after that.
func (w *writer) do(ctx context.Context, changes []change) error {
	var steps, full []step
	for i := range changes {
		steps = append(steps, changes[i].steps...)
	}
	slices.SortStableFunc(steps, func(a, b step) int { return a.phase - b.phase })
	for _, s := range steps {
		err := w.one(ctx, s)
		if s.phase == addMembers && code.Of(err) == wirev1.Code_CODE_OVERLOADED {
			full = append(full, s)
			continue
		}
		if err != nil {
			return err
		}
	}
	for _, s := range full {
		if err := w.one(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) one(ctx context.Context, s step) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.do(ctx, w); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w.stdio.Out, s.done)
	return err
}

// fresh refuses to write over what was changed after it was read. The API has no condition for a
// change: what comes between this question and the change is written over.
func (w *writer) fresh(ctx context.Context, prefix string, version uint64) error {
	answer, err := call(ctx, w.apis.namespaces.Get, &pushmeshv1.NamespaceServiceGetRequest{Prefix: prefix})
	if err != nil && code.Of(err) != wirev1.Code_CODE_NOT_FOUND {
		return err
	}
	if answer.GetNamespace().GetVersion() != version {
		return fmt.Errorf("namespace %s: %w", prefix, errChanged)
	}
	return nil
}

// putNamespace where it has a version still; 0: it is new.
func (w *writer) putNamespace(ctx context.Context, ns *pushmeshv1.Namespace, version uint64) error {
	if err := w.fresh(ctx, ns.GetPrefix(), version); err != nil {
		return err
	}
	answer, err := call(ctx, w.apis.namespaces.Put, &pushmeshv1.NamespaceServicePutRequest{Namespace: ns})
	w.lagging(ns.GetPrefix(), answer.GetLagging())
	return err
}

func (w *writer) deleteNamespace(ctx context.Context, prefix string, version uint64) error {
	if err := w.fresh(ctx, prefix, version); err != nil {
		return err
	}
	answer, err := call(ctx, w.apis.namespaces.Delete, &pushmeshv1.NamespaceServiceDeleteRequest{Prefix: prefix})
	w.lagging(prefix, answer.GetLagging())
	return err
}

func (w *writer) lagging(prefix string, nodes []string) {
	if len(nodes) > 0 {
		fmt.Fprintf(w.stdio.Err, "namespace %s: the change is stored, but %s may not use it yet\n", prefix, strings.Join(nodes, ", "))
	}
}

// putTeam that is as it was read: whether it is was asked before the first of them.
func (w *writer) putTeam(ctx context.Context, t *pushmeshv1.Team) (err error) {
	if w.teams == nil {
		if w.teams, err = w.apis.listTeams(ctx); err != nil {
			return err
		}
	}
	if w.teams[t.GetName()].GetVersion() != w.read.teams[t.GetName()].GetVersion() {
		return fmt.Errorf("team %s: %w", t.GetName(), errChanged)
	}
	_, err = call(ctx, w.apis.teams.PutTeam, &pushmeshv1.PutTeamRequest{Team: t})
	return err
}

func (w *writer) addMembers(ctx context.Context, team string, users []string) error {
	_, err := call(ctx, w.apis.teams.Add, &pushmeshv1.MembershipServiceAddRequest{Team: team, Users: users})
	return err
}

func (w *writer) putModel(ctx context.Context, m *meshfile.Model, path string) error {
	file, err := os.Open(path) // #nosec G304 -- the file that is applied names it
	if err != nil {
		return err
	}
	defer file.Close()
	ctx, cancel := context.WithTimeout(ctx, modelTime)
	defer cancel()
	_, err = ranking.Send(ctx, w.apis.models, &pushmeshv1.PutModelRequest{Name: m.Name, Format: m.Format, Columns: m.Columns, Comment: m.Comment}, file)
	return err
}

// makeKey has a place for the key before there is one: it can't be had again.
func (w *writer) makeKey(b *meshfile.Backend) (err error) {
	name, out := b.Entry.Name, w.stdio.Out
	if w.keys != "" {
		file, opened := os.OpenFile(w.keyFile(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, keyMode)
		if opened != nil {
			return opened
		}
		defer func() {
			if err = errors.Join(err, file.Close()); err != nil {
				err = errors.Join(err, os.Remove(file.Name())) // the next run needs the place
			}
		}()
		out = file
	}
	now := time.Now()
	var expires time.Time
	if b.KeyExpires > 0 {
		expires = now.Add(b.KeyExpires)
	}
	key, text, err := backends.Create(w.backends, name, nil, now, expires)
	if err != nil {
		return err
	}
	if w.keys == "" {
		text = fmt.Sprintf("key %s of backend %s, which is shown this once: %s", key.ID, name, text)
	}
	_, err = fmt.Fprintln(out, text)
	if file, is := out.(*os.File); is && w.keys != "" {
		err = errors.Join(err, file.Sync())
	}
	if err != nil {
		// nobody has it
		err = errors.Join(err, backends.Revoke(w.backends, key.ID))
	}
	return err
}

func (w *writer) keyFile(name string) string { return filepath.Join(w.keys, name+".key") }

// placeForKeys finds what is in the way of files with keys.
func (w *writer) placeForKeys(changes []change, file *meshfile.File) (errs []error) {
	if w.keys == "" {
		return nil
	}
	if info, err := os.Stat(w.keys); err != nil || !info.IsDir() {
		return []error{fmt.Errorf("--keys-dir %s is no folder", w.keys)}
	}
	for i := range file.Backends {
		name := file.Backends[i].Entry.Name
		makes := slices.ContainsFunc(changes, func(c change) bool {
			return c.what == "backend "+name && slices.ContainsFunc(c.steps, func(s step) bool { return s.phase == makeKeys })
		})
		if !makes {
			continue
		}
		if filepath.Base(name) != name {
			errs = append(errs, fmt.Errorf("--keys-dir: backend %s has no name that a file can have", name))
			continue
		}
		if _, err := os.Lstat(w.keyFile(name)); err == nil {
			errs = append(errs, fmt.Errorf("%s is there already: the new key of backend %s has no place", w.keyFile(name), name))
		}
	}
	return errs
}
