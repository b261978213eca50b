package request

import (
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/ranking/ranked"
)

// maxWhere is the most bytes of a content filter.
const maxWhere = 4 << 10

// Subscribe checks a Subscribe.
func (r *Rules) Subscribe(c Client, m *wirev1.Subscribe) *code.Error {
	switch {
	case c.IDInUse:
		return idInUse
	case m.GetWhere() != "" && m.GetGroup() != "":
		return unsupported("where is not supported with group: a message that one member filters out would go to no other member")
	case len(m.GetWhere()) > maxWhere:
		return invalid("where is longer than 4,096 bytes")
	case m.GetNoEcho() && m.GetGroup() != "":
		return unsupported("no_echo is not supported with group: a message that one member leaves out would go to no other member")
	case c.Subscriptions >= r.Subscriptions:
		return code.New(wirev1.Code_CODE_TOO_MANY_SUBSCRIPTIONS, "the connection is at its limit of subscriptions")
	case c.Draining:
		return stopping
	}
	if err := topic.CheckFilter(m.GetFilter()); err != nil {
		return code.New(wirev1.Code_CODE_BAD_TOPIC, err.Error())
	}
	if why := r.Refuses(m.GetFilter()); why != nil {
		return why
	}
	if why := c.ungranted(identity.Subscribe, "", m.GetFilter()); why != nil {
		return why
	}
	if m.GetGroup() != "" {
		if why := c.ungranted(identity.Group, m.GetGroup()+"/", m.GetFilter()); why != nil {
			return why
		}
	}
	if why := r.barred(c, m); why != nil {
		return why
	}
	wildcard := topic.IsFilter(m.GetFilter())
	switch {
	case !c.Backend && c.backendsOnly(m.GetFilter()):
		return code.New(wirev1.Code_CODE_FORBIDDEN, "topics that begin with $ are for backends, which subscribe through a router, and dead letters for clients whose token grants them")
	case m.GetStart() < 0 || m.GetStart() > wirev1.Start_START_SESSION:
		return invalid("start is not one that this edge knows")
	case m.GetOverflow() < 0 || m.GetOverflow() > wirev1.Overflow_OVERFLOW_DISCONNECT:
		return invalid("overflow is not one that this edge knows")
	case m.GetStart() == wirev1.Start_START_SESSION && !c.HasSession && m.GetGroup() == "":
		return invalid("start SESSION needs a session, and Hello named none")
	case len(m.GetPositions()) > r.WildcardTopics:
		return code.New(wirev1.Code_CODE_TOO_MANY_TOPICS, "there are more positions than topics that a filter may match")
	case m.GetOverflow() == wirev1.Overflow_OVERFLOW_DROP_OLDEST && (m.GetAck() || m.GetStart() == wirev1.Start_START_SESSION) &&
		(wildcard || r.PolicyFor(m.GetFilter()).Durable):
		return unsupported("overflow DROP_OLDEST is not supported on durable topics with ack or a session, because they drop nothing")
	case m.GetRankTopK() > 0:
		if err := ranked.Check(m, r.PolicyFor(m.GetFilter())); err != nil {
			return err
		}
	}
	if err := checkStart(m, wildcard); err != nil {
		return err
	}
	if err := checkGroup(m); err != nil {
		return err
	}
	if why := r.overloaded(); why != nil {
		return why
	}
	if why := r.matchesCheaply(m); why != nil {
		return why
	}
	return c.permitted(m.GetFilter(), m.GetGroup())
}

// barred refuses what the rules of namespaces let no client do.
func (r *Rules) barred(c Client, m *wirev1.Subscribe) *code.Error {
	if c.Backend || r.Namespaces == nil {
		return nil
	}
	table := r.Namespaces()
	if why := table.Bars(m.GetFilter()); why != nil {
		return why
	}
	if m.GetStart() == wirev1.Start_START_LIVE && len(m.GetPositions()) == 0 && m.GetGroup() == "" {
		return nil
	}
	// A session and a group go on where they were, which is before the subscription.
	return table.BarsHistory(m.GetFilter())
}

// checkStart refuses what a start has no use for: the client meant something by it.
func checkStart(m *wirev1.Subscribe, wildcard bool) *code.Error {
	after := m.GetStart() == wirev1.Start_START_AFTER_SEQ
	switch {
	case m.GetStart() == wirev1.Start_START_SESSION && len(m.GetPositions()) > 0:
		return invalid("start SESSION begins at the session's positions: leave positions out")
	case m.GetSeq() > 0 && !after && m.GetStart() != wirev1.Start_START_LAST_N:
		return invalid("seq goes with start AFTER_SEQ or LAST_N: leave it out, or name the start")
	case m.GetEpoch() > 0 && !after:
		return invalid("epoch goes with start AFTER_SEQ: leave it out, or name the start")
	case after && len(m.GetPositions()) > 0 && (m.GetSeq() > 0 || m.GetEpoch() > 0):
		return invalid("with positions, seq and epoch are those of the positions: leave the subscription's own out")
	case after && wildcard && (m.GetSeq() > 0 || m.GetEpoch() > 0):
		return invalid("a filter with wildcards has no single seq to start after: use positions")
	}
	return nil
}

// dead is the first level of dead-letter topics, the only ones of the mesh's own that clients may
// subscribe to: those whose token grants it.
const dead = "$dead"

// backendsOnly reports whether a valid filter is for topics of the mesh's own that the client may
// not subscribe to. No wildcard matches their first level.
func (c *Client) backendsOnly(filter string) bool {
	if filter[0] != '$' {
		return false
	}
	n := len(dead)
	return !c.Known || len(filter) < n || filter[:n] != dead || len(filter) > n && filter[n] != '/'
}
