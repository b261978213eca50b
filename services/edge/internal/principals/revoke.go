package principals

import (
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/revocation"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// Revocations are what revocation.Watch knows. They take no lock.
type Revocations interface {
	// Refuses says why a token is not taken now; nil: it is good.
	Refuses(t revocation.Token, now uint64) *code.Error
	// List of what is revoked; nil: that is not known.
	List() *revocation.List
}

// refuses says why a token is not taken that was found good: it is revoked, or it is not known what
// is, or what its user's teams grant. That is looked at here, and not where the token was checked,
// so that none comes in between that and a sweep.
func (t *Table) refuses(who *identity.Principal) *code.Error {
	if t.cfg.Revoked != nil {
		_, now := t.now()
		if why := t.cfg.Revoked.Refuses(revocation.Of(who), now); why != nil {
			return why
		}
	}
	if t.cfg.Teams != nil {
		return t.cfg.Teams.Fault()
	}
	return nil
}

// Sweep closes connections whose token was revoked since they came, some slots at a time. One that
// is under way goes on with the newest list, and begins again for what it has passed.
func (t *Table) Sweep() {
	if t.cfg.Revoked == nil || t.sweep != nil {
		return
	}
	t.sweep = &sweep{t: t, list: t.cfg.Revoked.List()}
	t.jobs.Push(t.sweep)
}

// sweep looks at every connection's token.
type sweep struct {
	t     *Table
	list  *revocation.List // as of its first slot
	slots walk.Slots
}

const (
	// slotsSlice is how many slots are looked at in one go.
	slotsSlice = 128
	// closeCost is how many units closing a connection counts for.
	closeCost = 8
)

// Step implements walk.Job.
func (j *sweep) Step() (done bool) {
	t, list := j.t, j.t.cfg.Revoked.List()
	_, now := t.now()
	done = j.slots.Step(t.cost, slotsSlice, uint32(t.slots.Len()), func(slot uint32) bool {
		if e := t.of(slot); e != nil {
			if why := list.Refuses(revocation.Token{User: e.user, Key: e.token, Issued: e.issued}, now); why != nil {
				t.end(slot, why)
			}
		}
		return true
	})
	switch {
	case !done:
		return false
	case list != j.list:
		j.list, j.slots = list, walk.Slots{}
		return false
	}
	t.sweep = nil
	return true
}

// end closes a connection, unless it is closed already.
func (t *Table) end(slot uint32, why *code.Error) {
	if _, _, _, is := t.delivery.Client(slot); !is {
		return
	}
	at, _ := t.delivery.OpenConn(slot)
	t.delivery.Close(at, why)
	t.stats.Revoked++
	t.cost.Add(closeCost * walk.ItemsPerUnit)
}
