package upstream

import (
	"context"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/groups"
)

// Hold makes conn the holder of a session that was attached under a generation.
func (m *Mesh) Hold(conn exchange.Conn, user, name string, generation uint64) {
	m.sessions.Hold(conn, user, name, generation)
}

// HasMembers implements groups.Mesh: routers that ask who is in a topic learn of it, and send no
// messages for it.
func (m *Mesh) HasMembers(filter string, has bool) {
	name, loop := topic.AnnouncedMembers(filter), m.cfg.Feed.Loops-1 // of the dispatchers
	m.ops.Do(func() {
		if has {
			m.table.Join(m.now, loop, name)
		} else {
			m.table.Leave(m.now, loop, name)
		}
	})
}

// DescribeGroups says what this edge knows of a group, by its name, a slash and its filter, or with
// "" of any 1,000.
func (m *Mesh) DescribeGroups(ctx context.Context, group string) []groups.Description {
	return m.groups.Describe(ctx, group)
}

// GroupStats of the shared subscriptions.
func (m *Mesh) GroupStats() *groups.Stats { return &m.groups.Stats }

// askGroups hands a frame to another edge.
func (m *Mesh) askGroups(ctx context.Context, edge string, frame []byte) ([]byte, error) {
	if err := bus.CheckID(edge); err != nil {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, err.Error())
	}
	return m.cfg.Bus.Request(ctx, bus.EdgeGroups(edge), frame)
}
