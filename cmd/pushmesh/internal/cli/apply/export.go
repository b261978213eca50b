package apply

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/meshfile"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// export prints what the mesh has.
func (c *Command) export(ctx context.Context, stdio cmdline.IO) error {
	conn, err := c.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	kinds := map[string]bool{meshfile.Models: true, meshfile.Namespaces: true, meshfile.Teams: true}
	m, err := apisOf(conn).read(ctx, kinds, func(string) bool { return true })
	if err != nil {
		return err
	}
	if m.entries, err = c.entries(); err != nil {
		return err
	}
	f, err := m.file(time.Now())
	if err != nil {
		return err
	}
	if c.Backends != "" {
		f.Sections[meshfile.Backends] = true
	}
	text, err := f.Write()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdio.Out, "%s%s", m.notes(), text)
	return err
}

// notes say which models there are: their files can't be had from a mesh.
func (m *mesh) notes() string {
	var b strings.Builder
	b.WriteString("# What the mesh has, for pushmesh apply. Namespaces that are built in are left out while they are as they come.\n")
	for _, name := range sorted(m.models) {
		fmt.Fprintf(&b, "# The newest version of model %s is %d; its file is not exported: models: {%[1]s: {file: FILE}}\n", name, m.models[name][0].GetVersion())
	}
	return b.String()
}

// file says what there is.
func (m *mesh) file(now time.Time) (*meshfile.File, error) {
	f := &meshfile.File{Sections: map[string]bool{meshfile.Namespaces: true, meshfile.Teams: true}}
	builtin := map[string]*pushmeshv1.Policy{}
	for _, ns := range policy.Builtin() {
		builtin[ns.GetPrefix()] = ns.GetPolicy()
	}
	for _, prefix := range sorted(m.namespaces) {
		ns := m.namespaces[prefix]
		if err := understood(ns); err != nil {
			return nil, err
		}
		if ns.GetBuiltin() && proto.Equal(policyOf(ns), builtin[prefix]) {
			continue
		}
		f.Namespaces = append(f.Namespaces, meshfile.Namespace{Namespace: &pushmeshv1.Namespace{Prefix: prefix, Policy: policyOf(ns)}})
	}
	for _, name := range sorted(m.teams) {
		f.Teams = append(f.Teams, meshfile.Team{Team: m.teams[name], Members: m.members[name], Managed: true})
	}
	for _, e := range m.entries {
		f.Backends = append(f.Backends, meshfile.Backend{Entry: e, Key: slices.ContainsFunc(e.Keys, lasts(now))})
	}
	return f, nil
}
