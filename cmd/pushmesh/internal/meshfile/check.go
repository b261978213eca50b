package meshfile

import (
	"strings"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/protoyaml"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/identity/backends"
	members "github.com/pushmesh/pushmesh/internal/team"
	"github.com/pushmesh/pushmesh/internal/trees"
)

// maxComment is what a router takes of a model's comment, in bytes.
const maxComment = 1024

// check finds what is wrong with names and values that are read.
func (f *File) check(r *protoyaml.Reader) {
	for i := range f.Models {
		m := &f.Models[i]
		if err := trees.CheckName(m.Name); err != nil {
			r.Fault(m.Line, "models.%.80s: %s", m.Name, code.From(err).Message)
		}
		if m.Path == "" {
			r.Fault(m.Line, "models.%.80s: file is missing", m.Name)
		}
		if len(m.Comment) > maxComment {
			r.Fault(m.Line, "models.%.80s: comment has %d bytes, at most %d", m.Name, len(m.Comment), maxComment)
		}
	}
	f.checkTeams(r)
	entries := make([]backends.Entry, len(f.Backends))
	for i := range f.Backends {
		b := &f.Backends[i]
		entries[i] = b.Entry
		if b.KeyExpires != 0 && !b.Key {
			r.Fault(b.Line, "backends.%s: key_expires is for a key that is made, and key is not true", b.Entry.Name)
		}
	}
	for i, faults := range backends.Check(entries) {
		for _, err := range faults {
			r.Fault(f.Backends[i].Line, "backends.%s: %w", entries[i].Name, err)
		}
	}
}

func (f *File) checkTeams(r *protoyaml.Reader) {
	of, all := map[string]int{}, 0
	for i := range f.Teams {
		t := &f.Teams[i]
		if err := members.Check(t.Team); err != nil {
			r.Fault(t.Line, "teams.%.80s: %w", t.Team.GetName(), err)
		}
		in := map[string]bool{}
		for _, user := range t.Members {
			if err := identity.CheckUser(user); err != nil {
				r.Fault(t.Line, "teams.%s: members: %.100q: %w", t.Team.GetName(), user, err)
			}
			if in[user] {
				r.Fault(t.Line, "teams.%s: members: %.100q is there twice", t.Team.GetName(), user)
				continue
			}
			in[user] = true
			if of[user]++; of[user] == members.MaxOfUser+1 {
				r.Fault(t.Line, "teams.%s: members: %.100q would be in more than %d teams", t.Team.GetName(), user, members.MaxOfUser)
			}
			all++
		}
	}
	if all > members.MaxMemberships || len(f.Teams) > members.MaxTeams {
		r.Fault(f.Teams[0].Line, "there are %d teams with %d members, %d and %d at most", len(f.Teams), all, members.MaxTeams, members.MaxMemberships)
	}
}

// each of the errors that were joined.
func each(err error) []error {
	switch several := err.(type) { //nolint:errorlint // it is taken apart, not looked for
	case nil:
		return nil
	case interface{ Unwrap() []error }:
		var all []error
		for _, one := range several.Unwrap() {
			all = append(all, each(one)...)
		}
		return all
	}
	return []error{err}
}

// lineOf is that of the field whose name an error begins with, else otherwise.
func lineOf(err error, lines map[string]int, otherwise int) int {
	word := strings.ReplaceAll(err.Error(), ": ", ".") // "rank: window is …"
	if end := strings.IndexByte(word, ' '); end >= 0 {
		word = word[:end]
	}
	for word != "" {
		if line, there := lines[word]; there {
			return line
		}
		word = word[:max(strings.LastIndexByte(word, '.'), 0)]
	}
	return otherwise
}
