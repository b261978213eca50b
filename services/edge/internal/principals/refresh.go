package principals

import (
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
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
		why = t.revoked(who)
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
	t.set(c, who)
	t.delivery.Refreshed(c, &wirev1.Refreshed{Id: id, ExpiresAt: expires(who)})
	if e.grants != before {
		t.jobs.Push(&review{t: t, c: c, alone: -1})
	}
}

// review ends subscriptions of a connection that it is not granted any more, from the last to the
// first: what takes the place of one that ends was looked at.
type review struct {
	t             *Table
	c             exchange.Conn
	alone, shared int // the next ones to look at; alone below 0: not begun
}

// reviewSlice is how many subscriptions are looked at in one go.
const (
	reviewSlice = 32
	// reviewLooks is how many levels of filters are compared in one go.
	reviewLooks = 256 * walk.ItemsPerUnit
)

// Step implements walk.Job.
func (j *review) Step() (done bool) {
	t, d := j.t, j.t.delivery
	if at, open := d.OpenConn(j.c.Slot); at != j.c || !open {
		return true
	}
	alone, shared := d.Subscriptions(j.c)
	if j.alone < 0 {
		j.alone, j.shared = alone, shared
	}
	j.alone, j.shared = min(j.alone, alone), min(j.shared, shared)
	rights, _ := t.Rights(j.c.Slot)
	for range reviewSlice {
		switch {
		case t.cost.Items >= reviewLooks:
			return false
		case j.alone > 0:
			j.alone--
			j.look(rights, false, j.alone)
		case j.shared > 0:
			j.shared--
			j.look(rights, true, j.shared)
		default:
			return true
		}
	}
	return false
}

// notGranted is told of a subscription that ends.
const notGranted = "the connection's new token does not grant it (rule default-deny)"

func (j *review) look(rights identity.Rights, shared bool, i int) {
	j.t.cost.Add(rights.Weight())
	if j.t.delivery.EndUnless(j.c, shared, i, func(filter, group string) bool {
		_, granted := rights.AllowsValid(identity.Subscribe, filter)
		if granted && group != "" {
			_, granted = rights.AllowsGroup(group, filter)
		}
		return granted
	}, notGranted) {
		j.t.stats.Lost++
	}
}
