package subscribe

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/pushmesh/pushmesh/client/presence"
	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
)

// Presence is who is in a topic, or what has changed, as JSON prints it.
type Presence struct {
	Topic string `json:"topic"`
	// All: joined is everybody.
	All     bool     `json:"all,omitempty"`
	Joined  []User   `json:"joined,omitempty"`
	Changed []User   `json:"changed,omitempty"`
	Left    []string `json:"left,omitempty"`
	// Users is how many there are.
	Users int `json:"users"`
	// CountsOnly: they are not named.
	CountsOnly bool `json:"counts_only,omitempty"`
}

// User in a topic, with what it says of itself.
type User struct {
	User        string `json:"user"`
	State       string `json:"state,omitempty"`
	StateBase64 []byte `json:"state_base64,omitempty"`
}

func usersOf(all []presence.Member) (users []User) {
	for _, m := range all {
		u := User{User: m.User}
		if utf8.Valid(m.State) {
			u.State = string(m.State)
		} else {
			u.StateBase64 = m.State
		}
		users = append(users, u)
	}
	return users
}

// checkPresence refuses what --presence can't be with.
func (c *Command) checkPresence() error {
	switch {
	case !c.Presence:
		return nil
	case c.GRPC:
		return cmdline.Usage("--presence and --grpc exclude each other: backends use pushmesh presence")
	}
	for _, f := range c.Filters {
		if strings.ContainsAny(f, "+#") {
			return cmdline.Usage("--presence needs topics without wildcards, and %s has some", f)
		}
	}
	return nil
}

// watchPresence prints who is in the topics, and who comes and goes.
func (c *Command) watchPresence(ctx context.Context, sub *pushmesh.Subscriber, p *printer, lost chan<- error) error {
	if !c.Presence {
		return nil
	}
	for _, topic := range c.Filters {
		w, err := presence.Watch(ctx, sub, topic, func(change presence.Change) {
			p.mu.Lock()
			defer p.mu.Unlock()
			_ = c.showPresence(p.stdio.Out, change) // where nothing can be written, messages say so
		})
		if err != nil {
			return p.ended(ctx, err)
		}
		go func() { // until sub is closed
			<-w.Done()
			if err := w.Err(); err != nil {
				lost <- fmt.Errorf("presence of %s: %w", topic, err)
			}
		}()
	}
	return nil
}

func (c *Command) showPresence(w io.Writer, change presence.Change) error {
	if c.Format == "json" {
		line, err := json.Marshal(map[string]Presence{"presence": {
			Topic: change.Topic, All: change.All, Joined: usersOf(change.Joined), Changed: usersOf(change.Changed), Left: change.Left, Users: change.Count, CountsOnly: change.CountsOnly,
		}})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s\n", line)
		return err
	}
	var out strings.Builder
	line := func(sign, what string) { fmt.Fprintf(&out, "%s\t%s\t%s\n", change.Topic, sign, what) }
	if change.CountsOnly {
		line("users", fmt.Sprint(change.Count))
	}
	for _, m := range change.Joined {
		line("joined", shownUser(m))
	}
	for _, m := range change.Changed {
		line("changed", shownUser(m))
	}
	for _, user := range change.Left {
		line("left", user)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func shownUser(m presence.Member) string {
	if len(m.State) == 0 {
		return m.User
	}
	return fmt.Sprintf("%s\t%q", m.User, m.State)
}
