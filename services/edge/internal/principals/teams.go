package principals

import (
	"slices"
	"strings"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/team"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// Teams are what team.Watch knows. They take no lock.
type Teams interface {
	// Fault says why nobody is let in by what is known; nil: all is well.
	Fault() *code.Error
	// List of all teams; nil: they are not known.
	List() *team.List
}

// teams are what a user is granted by those that it is in.
func (t *Table) teams(user string) (s team.Set) {
	if t.cfg.Teams == nil {
		return s
	}
	return t.cfg.Teams.List().Of(user)
}

// Changed goes on by what is known of tokens and users now.
func (t *Table) Changed(what exchange.Event) {
	switch what.(type) {
	case exchange.RevocationsChanged:
		t.Sweep()
	case exchange.TeamsChanged:
		t.TeamsChanged()
	}
}

// TeamsChanged gives connections what the teams of their users grant now, some slots at a time, and
// ends what is granted no more. One that is under way goes on with the newest teams, and begins
// again for what it has passed.
func (t *Table) TeamsChanged() {
	if t.cfg.Teams == nil || t.moving != nil {
		return
	}
	var before identity.Rights // of the connection that is reviewed
	t.moving = &pass{
		current: func() any { return t.cfg.Teams.List() },
		begin: func(slot uint32) (changed bool) {
			if before, changed = t.move(slot); changed {
				t.loseClaims(slot, before)
			}
			return changed
		},
		over: func() { t.moving = nil },
	}
	t.moving.start(t, func(end ender) { t.endLost(t.moving.review.c, before, end) })
}

// move has a connection be of the teams that its user is in now, and says what it might do before,
// where that was something else.
func (t *Table) move(slot uint32) (before identity.Rights, changed bool) {
	e := t.of(slot)
	if e == nil {
		return before, false
	}
	own, was := t.grants.parts(e.grants)
	teams := t.teams(e.user)
	if teams == was {
		return before, false
	}
	before, _ = t.Rights(slot)
	place := t.grants.hold(own, teams)
	t.grants.release(e.grants)
	e.grants = place
	return before, true
}

// loseClaims takes back what a connection waits for and watches, where its rights granted that
// before and do not now. What it holds it can't renew, and gives up in time.
func (t *Table) loseClaims(slot uint32, before identity.Rights) {
	clientID, _, _, _ := t.delivery.Client(slot)
	at, _ := t.delivery.OpenConn(slot)
	rights, _ := t.Rights(slot)
	t.delivery.LoseClaims(at, t.Owner(slot, clientID), func(resource string) bool {
		t.cost.Add(before.Weight() + rights.Weight())
		_, had := before.AllowsValid(identity.Claim, resource)
		_, has := rights.AllowsValid(identity.Claim, resource)
		return had && !has
	})
}

// endLost ends what a connection is not granted any more, and says which rules granted it.
func (t *Table) endLost(c exchange.Conn, before identity.Rights, end ender) {
	rights, known := t.Rights(c.Slot)
	if !known {
		return
	}
	t.cost.Add(rights.Weight())
	if end(func(id uint32, filter, group string) string {
		if t.allows(c, rights, id, filter, group) {
			return ""
		}
		return noTeam(before, filter, group)
	}) {
		t.stats.Left++
	}
}

// noTeam is told of a subscription that ends: which teams had granted it.
func noTeam(before identity.Rights, filter, group string) string {
	by, _ := before.AllowsValid(identity.Subscribe, filter)
	if group != "" {
		more, _ := before.AllowsGroup(group, filter)
		by = append(by[:len(by):len(by)], more...)
	}
	var from []string
	for _, rule := range by {
		if strings.HasPrefix(rule.Source, team.Source("")) && !slices.Contains(from, rule.Source) {
			from = append(from, rule.Source)
		}
	}
	return "the user's teams do not grant it any more (it was by " + strings.Join(from, ", ") + "; rule default-deny)"
}
