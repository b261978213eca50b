package principals

import (
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// Refresh takes a token in place of the one that the connection has.
func (t *Table) Refresh(c exchange.Conn, m *wirev1.RefreshToken) {
	switch {
	case m.GetId() == 0: // which could not be answered
		t.delivery.Close(c, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "ids start at 1"))
		return
	case t.cfg.Door == nil:
		t.delivery.RefuseRequest(c, m.GetId(), noTokens)
		return
	case t.of(c.Slot) == nil:
		t.delivery.RefuseRequest(c, m.GetId(), code.New(wirev1.Code_CODE_FORBIDDEN, "Hello had no token: a connection keeps the user that it began with, so connect again with the token"))
		return
	case t.waits(c.Slot):
		t.delivery.RefuseRequest(c, m.GetId(), code.New(wirev1.Code_CODE_RATE_LIMITED, "another token of this connection is being checked"))
		return
	}
	clientID, _, _, _ := t.delivery.Client(c.Slot)
	who, why, known := t.identify(c, Shown{Token: m.GetToken(), ClientID: clientID})
	if !known {
		now, _ := t.now()
		t.waiting[c.Slot] = waiting{conn: c, id: m.GetId(), since: now}
		return
	}
	t.refreshed(c, m.GetId(), who, why)
}

// refreshPatience is for how long a RefreshToken keeps others from being taken: its answer may have
// found a mailbox full.
const refreshPatience = time.Minute

func (t *Table) waits(slot uint32) bool {
	w, is := t.waiting[slot]
	now, _ := t.now()
	return is && now-w.since < int64(refreshPatience)
}

// refreshed answers a RefreshToken. A token that is refused leaves the connection as it was, with
// the time that its token before has left.
func (t *Table) refreshed(c exchange.Conn, id uint32, who *identity.Principal, why *code.Error) {
	e := t.of(c.Slot)
	switch {
	case e == nil || e.gen != c.Gen:
		return // it ended while the token was checked
	case why == nil && who.User != e.user:
		why = code.New(wirev1.Code_CODE_FORBIDDEN, "the token is of another user: a connection keeps the user that it began with")
	}
	if why == nil {
		why = t.refuses(who)
	}
	if why == nil && len(who.Clients) > 0 {
		if clientID, _, _, _ := t.delivery.Client(c.Slot); !who.AllowsClient(clientID) {
			why = notThisClient
		}
	}
	if why != nil {
		t.delivery.RefuseRequest(c, id, why)
		return
	}
	t.stats.Refreshed++
	before := e.grants
	had, _ := t.Rights(c.Slot)
	t.set(c, who)
	t.delivery.Refreshed(c, &wirev1.Refreshed{Id: id, ExpiresAt: expires(who)})
	if e.grants != before {
		t.loseClaims(c.Slot, had)
		t.jobs.Push(newReview(t, c, t.ungranted(c)))
	}
}

// notGranted is told of a subscription that ends.
const notGranted = "the connection's new token does not grant it (rule default-deny)"

// allows reports whether rights, or answers of the permission hook, allow a subscription, alone or
// in a group.
func (t *Table) allows(c exchange.Conn, r identity.Rights, id uint32, filter, group string) bool {
	_, granted := r.AllowsValid(identity.Subscribe, filter)
	granted = granted || t.extra != nil && t.extra(c, id, identity.Subscribe)
	if !granted || group == "" {
		return granted
	}
	_, granted = r.AllowsGroup(group, filter)
	return granted || t.extra != nil && t.extra(c, id, identity.Group)
}

// ungranted ends what a connection is not granted any more.
func (t *Table) ungranted(c exchange.Conn) look {
	return func(end ender) {
		rights, _ := t.Rights(c.Slot)
		t.cost.Add(rights.Weight())
		if end(func(id uint32, filter, group string) string {
			if t.allows(c, rights, id, filter, group) {
				return ""
			}
			return notGranted
		}) {
			t.stats.Lost++
		}
	}
}
