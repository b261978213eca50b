package request

import (
	"strings"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/groups/assignment"
)

const (
	// maxGroup is the most bytes of a group's name, maxTogether of that and the filter: they are
	// stored as one name of a session.
	maxGroup    = 64
	maxTogether = 255
)

// checkGroup finds what speaks against the group of a Subscribe.
func checkGroup(m *wirev1.Subscribe) *code.Error {
	name := m.GetGroup()
	switch {
	case name == "" && m.GetGroupKey() == "":
		return nil
	case name == "":
		return invalid("group_key needs group")
	case len(name) > maxGroup || strings.Contains(name, "/") || HasControl(name):
		return invalid("group must be 1 to 64 bytes long, without / and control characters")
	case len(name)+1+len(m.GetFilter()) > maxTogether:
		return invalid("group and filter must be at most 254 bytes long together")
	case m.GetStart() == wirev1.Start_START_SESSION:
		return invalid("start SESSION is not supported with group: a group has positions of its own")
	case m.GetOverflow() != wirev1.Overflow_OVERFLOW_DEFAULT:
		return unsupported("overflow is not supported with group: what a member can't take goes to others")
	}
	if err := assignment.CheckKey(m.GetGroupKey()); err != nil {
		return invalid(err.Error())
	}
	return nil
}
