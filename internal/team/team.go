// Package team knows teams: users who are granted the same beside what their tokens grant. Stores
// keep them, and every edge that checks who clients are has a List of all, which a Watch keeps up
// to date.
package team

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Bounds of the whole mesh: every edge has all of it.
const (
	MaxTeams       = 1000
	MaxMemberships = 100_000
)

// MaxOfUser is how many teams a user may be in: their rules are all looked at for a request of it.
const MaxOfUser = 8

// MaxUsers is how many users a change may name.
const MaxUsers = 1000

// Bounds of a team, in bytes: its name, and its filters together.
const (
	MaxName    = 64
	maxFilters = 8 << 10
)

// CheckName finds what is wrong with the name of a team.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("the team's name is empty")
	case len(name) > MaxName:
		return fmt.Errorf("the team's name is %d bytes long, %d at most", len(name), MaxName)
	case !utf8.ValidString(name) || strings.ContainsRune(name, utf8.RuneError):
		return errors.New("the team's name is not UTF-8")
	case strings.ContainsAny(name, "/+#{}") || name[0] == '$':
		return errors.New("the team's name must not contain /, +, # or braces, nor begin with $")
	case strings.ContainsFunc(name, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }):
		return errors.New("the team's name must not contain spaces or control characters")
	}
	return nil
}

// Check finds what is wrong with a team.
func Check(t *pushmeshv1.Team) error {
	if err := CheckName(t.GetName()); err != nil {
		return err
	}
	size := 0
	for _, rule := range rules(t) {
		if size += len(rule.Filter); rule.Verb == identity.Group && !strings.Contains(rule.Filter, "/") {
			return fmt.Errorf("group %.100q must be GROUP/FILTER", rule.Filter)
		}
	}
	if size > maxFilters {
		return fmt.Errorf("the filters of team %s have %d bytes, %d together at most", t.GetName(), size, maxFilters)
	}
	_, err := Grants(t)
	return err
}

// Grants of a team. Their rules name it as where they come from.
func Grants(t *pushmeshv1.Team) (*identity.Grants, error) { return identity.NewGrants(rules(t)) }

func rules(t *pushmeshv1.Team) (all []identity.Rule) {
	source := Source(t.GetName())
	for verb, filters := range map[identity.Verb][]string{
		identity.Subscribe: t.GetSubscribe(), identity.Publish: t.GetPublish(), identity.Claim: t.GetClaim(), identity.Group: t.GetGroup(),
	} {
		for _, filter := range filters {
			all = append(all, identity.Rule{Verb: verb, Filter: filter, Source: source})
		}
	}
	return all
}

// Source names a team's rules.
func Source(name string) string { return "team:" + name }
