package procmesh

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
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
		body, err := groupsOf(ctx, p)
		if err != nil {
			body = []byte(err.Error())
		}
		fmt.Fprintf(&all, "%s:\n%s\n", p.Name, body)
	}
	return all.String()
}

func groupsOf(ctx context.Context, p *Process) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.HTTP+"/debug/groups", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
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
		body, err := groupsOf(ctx, p)
		if err != nil {
			return err
		}
		var groups []group
		if err := json.Unmarshal(body, &groups); err != nil {
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
