package apply

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/meshfile"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/protoyaml"
	"github.com/pushmesh/pushmesh/internal/identity/backends"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/strictyaml"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Phases, in whose order steps are done: what others need comes first, and is deleted last. A user
// comes into a team before it leaves another one, which grants it something meanwhile.
const (
	putModels = iota
	putNamespaces
	putTeams
	addMembers
	removeMembers
	putBackends
	makeKeys
	deleteBackends
	deleteTeams
	deleteNamespaces
	deleteModels
)

// Kinds of changes, as they are printed.
const (
	added   = '+'
	changed = '~'
	deleted = '-'
)

// change is what becomes of an object.
type change struct {
	op      rune
	what    string // "namespace orders"
	details []string
	// loses is what is lost for good by it; "": nothing.
	loses string
	steps []step
}

// step is one call, or one edit of a file.
type step struct {
	phase int
	// done is what it has done, for people.
	done string
	do   func(context.Context, *writer) error
}

// plan is what makes of a mesh what a file says. It has no clock and asks nobody.
type plan struct {
	changes []change
	faults  []strictyaml.Fault
	// read is what the changes are made from: a namespace or team that has another version by then
	// is not written.
	read *mesh
}

// loaded is a model's file.
type loaded struct {
	path    string
	size    int
	digest  []byte
	columns []string
}

// wanted is what a plan is made from, beside the mesh.
type wanted struct {
	file   *meshfile.File
	models map[string]loaded
	prune  map[string]bool
	now    time.Time
}

func (w *wanted) plan(m *mesh) *plan {
	p := &plan{read: m}
	after := p.namespaces(w, m)
	p.models(w, m, after)
	p.teams(w, m)
	p.backends(w, m)
	// in the order of the kinds: models first
	slices.SortStableFunc(p.changes, func(a, b change) int { return kindOf(a.what) - kindOf(b.what) })
	return p
}

func kindOf(what string) int {
	kind, _, _ := strings.Cut(what, " ")
	return slices.Index(meshfile.Kinds, kind+"s")
}

func (p *plan) fault(line int, format string, args ...any) {
	p.faults = append(p.faults, strictyaml.At(line, format, args...))
}

// namespaces returns the policies that there are afterwards.
func (p *plan) namespaces(w *wanted, m *mesh) (after map[string]*pushmeshv1.Policy) {
	after = map[string]*pushmeshv1.Policy{}
	for prefix, ns := range m.namespaces {
		after[prefix] = ns.GetPolicy()
	}
	named := map[string]bool{}
	for i := range w.file.Namespaces {
		n := &w.file.Namespaces[i]
		prefix, now := n.Namespace.GetPrefix(), n.Namespace.GetPolicy()
		named[prefix], after[prefix] = true, now
		before, there := m.namespaces[prefix]
		if there {
			if err := understood(before); err != nil {
				p.fault(n.Line, "%w", err)
				continue
			}
		}
		c := change{op: added, what: "namespace " + prefix}
		c.details = lines(protoyaml.Differ(protoyaml.Node(policyOf(before)), protoyaml.Node(now)))
		switch {
		case there && len(c.details) == 0:
			continue
		case there:
			c.op, c.loses = changed, loses(prefix, before.GetPolicy(), now)
		default:
			c.loses = losesBelow(prefix, m, now)
		}
		c.steps = []step{{putNamespaces, c.what + " is put", func(ctx context.Context, w *writer) error {
			return w.putNamespace(ctx, n.Namespace, before.GetVersion())
		}}}
		p.changes = append(p.changes, c)
	}
	if !w.prune[meshfile.Namespaces] {
		return after
	}
	for _, prefix := range sorted(m.namespaces) {
		ns := m.namespaces[prefix]
		if named[prefix] || ns.GetBuiltin() {
			continue
		}
		delete(after, prefix)
		c := change{op: deleted, what: "namespace " + prefix, loses: "namespace " + prefix + " is deleted"}
		if ns.GetPolicy().GetDurable() {
			c.loses += ", which is durable: its topics get the policy of the next shorter prefix"
		}
		if ns.GetPolicy().GetKeep() == pushmeshv1.Keep_KEEP_LAST {
			c.loses += ", and what they keep is deleted unless that has keep LAST, too"
		}
		c.steps = []step{{deleteNamespaces, c.what + " is deleted", func(ctx context.Context, w *writer) error { return w.deleteNamespace(ctx, prefix, ns.GetVersion()) }}}
		p.changes = append(p.changes, c)
	}
	return after
}

func policyOf(ns *pushmeshv1.Namespace) *pushmeshv1.Policy {
	if p := ns.GetPolicy(); p != nil {
		return p
	}
	return &pushmeshv1.Policy{}
}

// loses is which messages go by a change of a policy; "": none.
func loses(prefix string, before, now *pushmeshv1.Policy) string {
	stay := func(p *pushmeshv1.Policy) time.Duration {
		if d := p.GetRetention().AsDuration(); d != 0 {
			return d
		}
		return policy.DefaultRetention
	}
	switch {
	case !before.GetDurable():
		return ""
	case !now.GetDurable():
		return "namespace " + prefix + " is durable, and becomes ephemeral: its messages are no longer stored"
	case before.GetKeep() == pushmeshv1.Keep_KEEP_LAST && now.GetKeep() != pushmeshv1.Keep_KEEP_LAST:
		return "topics of namespace " + prefix + " keep their last messages, and these are deleted"
	case stay(now) < stay(before):
		return fmt.Sprintf("messages in namespace %s go after %s, and no longer after %s", prefix, protoyaml.Duration(stay(now)), protoyaml.Duration(stay(before)))
	}
	return ""
}

// losesBelow is the same of a new namespace, whose topics have had the policy of a shorter prefix.
func losesBelow(prefix string, m *mesh, now *pushmeshv1.Policy) string {
	for at := prefix; ; {
		end := strings.LastIndexByte(at, '/')
		if end < 0 {
			break
		}
		at = at[:end]
		if above := m.namespaces[at]; above != nil {
			return loses(prefix+", which is below "+at+",", above.GetPolicy(), now)
		}
	}
	return loses(prefix+", which has the policy of default,", m.namespaces[policy.Default].GetPolicy(), now)
}

// models are put where the newest version is another one. policies are those that there are
// afterwards.
func (p *plan) models(w *wanted, m *mesh, policies map[string]*pushmeshv1.Policy) {
	named, made := map[string]bool{}, map[string]bool{}
	for i := range w.file.Models {
		one := &w.file.Models[i]
		named[one.Name] = true
		file := w.models[one.Name]
		versions := m.models[one.Name]
		if len(versions) > 0 && bytes.Equal(versions[0].GetDigest(), file.digest) && slices.Equal(versions[0].GetColumns(), file.columns) {
			continue
		}
		made[one.Name] = true
		c := change{op: added, what: "model " + one.Name, details: []string{fmt.Sprintf("+ version: a new one of %d bytes, from %s", file.size, one.Path)}}
		if len(versions) > 0 {
			c.op = changed
		}
		c.steps = []step{{putModels, c.what + " has a new version", func(ctx context.Context, w *writer) error { return w.putModel(ctx, one, file.path) }}}
		p.changes = append(p.changes, c)
	}
	for i := range w.file.Namespaces {
		n := &w.file.Namespaces[i]
		s := n.Namespace.GetPolicy().GetRank().GetModel()
		if s == nil || made[s.GetName()] {
			continue // whether a new version has the number that is named, the router knows
		}
		for _, version := range []uint64{s.GetVersion(), s.GetNextVersion()} {
			has := func(one *pushmeshv1.Model) bool { return version == 0 || one.GetVersion() == version }
			if !slices.ContainsFunc(m.models[s.GetName()], has) {
				p.fault(n.Line, "namespaces.%s: there is no model %s, version %d, neither in the mesh nor in the file (0: any)", n.Namespace.GetPrefix(), s.GetName(), version)
				break
			}
		}
	}
	if !w.prune[meshfile.Models] {
		return
	}
	for _, name := range sorted(m.models) {
		if named[name] {
			continue
		}
		for _, prefix := range sorted(policies) {
			if policies[prefix].GetRank().GetModel().GetName() == name {
				p.fault(0, "--prune models: model %s is not in the file, but namespace %s uses it", name, prefix)
			}
		}
		c := change{op: deleted, what: "model " + name, loses: fmt.Sprintf("model %s is deleted with its files, %d versions", name, len(m.models[name]))}
		for _, v := range m.models[name] {
			c.steps = append(c.steps, step{deleteModels, fmt.Sprintf("model %s@%d is deleted", name, v.GetVersion()), func(ctx context.Context, w *writer) error {
				_, err := call(ctx, w.apis.models.DeleteModel, &pushmeshv1.DeleteModelRequest{Name: name, Version: v.GetVersion()})
				return err
			}})
		}
		p.changes = append(p.changes, c)
	}
}

func (p *plan) teams(w *wanted, m *mesh) {
	named := map[string]bool{}
	for i := range w.file.Teams {
		t := &w.file.Teams[i]
		name := t.Team.GetName()
		named[name] = true
		before, there := m.teams[name]
		if there && newer(before.ProtoReflect()) {
			p.fault(t.Line, "team %s has fields that this version of pushmesh does not know: use a newer one", name)
			continue
		}
		c := change{op: added, what: "team " + name}
		if there {
			c.op = changed
		}
		grants := protoyaml.Differ(teamNode(before), teamNode(t.Team))
		if !there || len(grants) > 0 {
			c.steps = append(c.steps, step{putTeams, c.what + " is put", func(ctx context.Context, w *writer) error { return w.putTeam(ctx, t.Team) }})
		}
		c.details = lines(grants)
		if t.Managed {
			add, remove := beyond(t.Members, m.members[name]), beyond(m.members[name], t.Members)
			c.members(name, add, remove)
		}
		if there && len(c.steps) == 0 {
			continue
		}
		p.changes = append(p.changes, c)
	}
	if !w.prune[meshfile.Teams] {
		return
	}
	for _, name := range sorted(m.teams) {
		if named[name] {
			continue
		}
		c := change{op: deleted, what: "team " + name, loses: "team " + name + " is deleted with its memberships: what it grants ends"}
		c.steps = []step{{deleteTeams, c.what + " is deleted", func(ctx context.Context, w *writer) error {
			_, err := call(ctx, w.apis.teams.DeleteTeam, &pushmeshv1.DeleteTeamRequest{Name: name})
			return err
		}}}
		p.changes = append(p.changes, c)
	}
}

func teamNode(t *pushmeshv1.Team) *yaml.Node {
	if t == nil {
		t = &pushmeshv1.Team{}
	}
	return protoyaml.Node(t, "name", "version")
}

// members are added and removed in calls that have as many as one may name.
func (c *change) members(team string, add, remove []string) {
	for _, d := range []protoyaml.Difference{{Path: "members", Added: add}, {Path: "members", Removed: remove}} {
		if d.Added != nil || d.Removed != nil {
			c.details = append(c.details, strings.Split(d.String(), "\n")...)
		}
	}
	for _, some := range calls(add) {
		c.steps = append(c.steps, step{addMembers, fmt.Sprintf("team %s: members added: %d", team, len(some)), func(ctx context.Context, w *writer) error {
			return w.addMembers(ctx, team, some)
		}})
	}
	for _, some := range calls(remove) {
		c.steps = append(c.steps, step{removeMembers, fmt.Sprintf("team %s: members removed: %d", team, len(some)), func(ctx context.Context, w *writer) error {
			_, err := call(ctx, w.apis.teams.Remove, &pushmeshv1.MembershipServiceRemoveRequest{Team: team, Users: some})
			return err
		}})
	}
}

func (p *plan) backends(w *wanted, m *mesh) {
	after, named := slices.Clone(m.entries), map[string]int{}
	for i := range w.file.Backends {
		b := &w.file.Backends[i]
		name := b.Entry.Name
		named[name] = b.Line
		at := slices.IndexFunc(after, func(e backends.Entry) bool { return e.Name == name })
		c := change{op: added, what: "backend " + name}
		var before backends.Entry
		if at >= 0 {
			c.op, before = changed, after[at]
		}
		differences := protoyaml.Differ(meshfile.EntryNode(before), meshfile.EntryNode(b.Entry))
		if c.details = lines(differences); at < 0 || len(differences) > 0 {
			c.steps = append(c.steps, step{putBackends, c.what + " is in the backends file", func(_ context.Context, w *writer) error { return backends.Put(w.backends, b.Entry) }})
		}
		b.Entry.Keys = before.Keys
		if at < 0 {
			after = append(after, b.Entry)
		} else {
			after[at] = b.Entry
		}
		if b.Key && !slices.ContainsFunc(before.Keys, lasts(w.now)) {
			end := "never ends"
			if b.KeyExpires > 0 {
				end = "ends after " + protoyaml.Duration(b.KeyExpires)
			}
			c.details = append(c.details, "+ key: a new one, which "+end)
			c.steps = append(c.steps, step{makeKeys, c.what + " has a new key", func(_ context.Context, w *writer) error { return w.makeKey(b) }})
			// must have room for it
			one := &after[slices.IndexFunc(after, func(e backends.Entry) bool { return e.Name == name })]
			one.Keys = append(slices.Clone(one.Keys), backends.Key{ID: fmt.Sprintf("%016x", i), SHA256: strings.Repeat("00", 32)})
		}
		if len(c.steps) > 0 {
			p.changes = append(p.changes, c)
		}
	}
	if w.prune[meshfile.Backends] {
		for _, e := range m.entries {
			if _, stays := named[e.Name]; stays {
				continue
			}
			after = slices.DeleteFunc(after, func(one backends.Entry) bool { return one.Name == e.Name })
			c := change{op: deleted, what: "backend " + e.Name, loses: fmt.Sprintf("backend %s is taken out of the backends file with its %d keys", e.Name, len(e.Keys))}
			c.steps = []step{{deleteBackends, c.what + " is taken out", func(_ context.Context, w *writer) error { return backends.Remove(w.backends, e.Name) }}}
			p.changes = append(p.changes, c)
		}
	}
	for i, faults := range backends.Check(after) {
		for _, err := range faults {
			p.fault(named[after[i].Name], "the backends file would have a fault: backend %s: %w", after[i].Name, err)
		}
	}
}

// lasts reports whether a key has not ended.
func lasts(now time.Time) func(backends.Key) bool {
	return func(k backends.Key) bool { return k.Expires.IsZero() || now.Before(k.Expires.Time) }
}

// lines of differences.
func lines(all []protoyaml.Difference) (out []string) {
	for _, d := range all {
		out = append(out, strings.Split(d.String(), "\n")...)
	}
	return out
}

// beyond are those that other has not, sorted.
func beyond(all, other []string) (out []string) {
	has := map[string]bool{}
	for _, one := range other {
		has[one] = true
	}
	for _, one := range all {
		if !has[one] {
			out = append(out, one)
		}
	}
	slices.Sort(out)
	return out
}

func sorted[V any](m map[string]V) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// newer reports whether a message, or one within, has fields that this program does not know.
func newer(m protoreflect.Message) bool {
	if len(m.GetUnknown()) > 0 {
		return true
	}
	found := false
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		found = f.Message() != nil && !f.IsMap() && !f.IsList() && newer(v.Message())
		return !found
	})
	return found
}
