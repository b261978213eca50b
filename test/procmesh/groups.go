package procmesh

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// group is what an edge knows of one, by /debug/groups.
type group struct {
	Group      string
	Members    []groupMember
	Dispatcher *struct{ Members []groupMember }
}

type groupMember struct {
	Edge string
	ID   uint64
	Has  int
}

// Groups is what each edge knows of the groups that it has to do with.
func (m *Mesh) Groups(ctx context.Context) string {
	var all strings.Builder
	for _, p := range m.Edges {
		_, body, err := p.get(ctx, "/debug/groups")
		if err != nil {
			body = err.Error()
		}
		fmt.Fprintf(&all, "%s:\n%s\n", p.Name, body)
	}
	return all.String()
}

// GroupsAgree checks that every member that a dispatcher has is one that its edge has. While
// clients come and go, and for some seconds after, it need not be so.
func (m *Mesh) GroupsAgree(ctx context.Context) error {
	type name struct {
		group, edge string
		id          uint64
	}
	known, taken := map[name]bool{}, map[name]int{}
	for _, p := range m.Edges {
		_, body, err := p.get(ctx, "/debug/groups")
		if err != nil {
			return err
		}
		var groups []group
		if err := json.Unmarshal([]byte(body), &groups); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
		for _, g := range groups {
			for _, one := range g.Members {
				known[name{g.Group, one.Edge, one.ID}] = true
			}
			if g.Dispatcher == nil {
				continue
			}
			for _, one := range g.Dispatcher.Members {
				taken[name{g.Group, one.Edge, one.ID}] = one.Has
			}
		}
	}
	for n, has := range taken {
		if !known[n] {
			return fmt.Errorf("group %s has member %d of %s with %d messages, and that edge has none such", n.group, n.id, n.edge, has)
		}
	}
	return nil
}
