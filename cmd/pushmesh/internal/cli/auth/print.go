package auth

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
)

// print writes the answer for people.
func (a *answer) print(w io.Writer, now time.Time) error {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	if a.Refusal != nil {
		say("refused: the token is not good: %s: %s", a.Refusal.Code, a.Refusal.Message)
		_, err := io.WriteString(w, b.String())
		return err
	}
	for _, c := range a.Checks {
		c.print(a.User, say)
	}
	if a.Client != nil {
		verdict := "refused"
		if a.Client.Allowed {
			verdict = "allowed"
		}
		say("%s: client id %s, because %s", verdict, a.Client.ID, a.clients())
	}
	say("user: %s", a.User)
	if a.proven {
		say("proof: issuer %s, key %s, token id %s", a.Issuer, cmdline.OrDash(a.KeyID), cmdline.OrDash(a.TokenID))
		if a.Keys != nil {
			say("keys: %s", a.Keys.show(now))
		}
		if a.NotBefore != "" {
			say("not before: %s", a.NotBefore)
		}
		say("expires: %s, in %s (the leeway between clocks included)", a.Expires, a.expires.Sub(now).Round(time.Second))
	}
	if len(a.Checks) == 0 {
		a.printWhole(say)
	}
	say("note: %s", a.Note)
	_, err := io.WriteString(w, b.String())
	return err
}

func (a *answer) clients() string {
	if len(a.Clients) == 0 {
		return "any client id may be used"
	}
	return "client ids may be " + strings.Join(a.Clients, " or ")
}

func (a *answer) printWhole(say func(string, ...any)) {
	say("client ids: %s", cmp.Or(strings.Join(a.Clients, " "), "any"))
	if len(a.Profile) > 0 {
		var all []string
		for _, name := range slices.Sorted(maps.Keys(a.Profile)) {
			all = append(all, name+"="+cmdline.ShortNumber(a.Profile[name]))
		}
		say("profile: %s", strings.Join(all, ","))
	}
	for _, r := range a.Rules {
		say("may %s", doing(r.Verb, r.show()))
	}
}

func (c *check) print(user string, say func(string, ...any)) {
	if c.Allowed {
		say("allowed: %s may %s", user, doing(c.Verb, c.Filter))
		for _, r := range c.By {
			say("  by %s", r.show())
		}
		return
	}
	say("refused: no rule allows %s to %s", user, doing(c.Verb, c.Filter))
	switch {
	case len(c.Rules) == 0:
		say("  there is no rule for that verb")
		return
	case c.Nearest != nil:
		say("  nearest: %s, which allows a part of it", c.Nearest.show())
	default:
		say("  no rule for that verb has a topic in common with it")
	}
	for _, r := range c.Rules {
		say("  rule: %s", r.show())
	}
}

// doing is a verb with its object, which begins with a filter.
func doing(verb, what string) string {
	switch verb {
	case "subscribe", "publish":
		return verb + " to " + what
	case "group":
		group, filter, _ := strings.Cut(what, "/")
		return "be in group " + group + " for " + filter
	}
	return verb + " " + what
}

func (r *rule) show() string {
	if r.Rule != r.Filter {
		return fmt.Sprintf("%s (%s: %s)", r.Filter, r.Source, r.Rule)
	}
	return fmt.Sprintf("%s (%s)", r.Filter, r.Source)
}
