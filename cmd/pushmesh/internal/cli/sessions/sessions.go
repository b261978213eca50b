// Package sessions has the commands on durable sessions.
package sessions

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cli/ranking"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Command is the command pushmesh session.
type Command struct {
	List       list               `cmd:"" help:"Show durable sessions and what they keep, by name, size, user or address."`
	Delete     remove             `cmd:"" help:"Delete one durable session, or all of a user or an address."`
	Adopt      adopt              `cmd:"" help:"Give sessions of clients without tokens to users."`
	SetProfile ranking.SetProfile `cmd:"" name:"set-profile" help:"Replace the profile that messages are ranked for, of a client's or a user's connections."`
}

type list struct {
	User    string `placeholder:"USER" help:"Sessions of this user; of everybody by default. Without authentication a client is the user client:ID."`
	Address string `placeholder:"ADDRESS" help:"Sessions that were created from this address: IPv4, or a /64 of IPv6 as list prints it."`
	By      string `enum:"name,size,user,address" default:"name" help:"Order by user and name, or the largest first: sessions (size), or sums over users or addresses."`
	Limit   int    `placeholder:"N" help:"Show at most N; all by default."`
	cmdline.RouterFlag
	cmdline.FormatFlag
}

func (list) Help() string {
	return `BYTES is about what filters and positions take in the database. ORIGIN is the address that created a session; it is empty for
addresses that edges exempt, and for sessions from before addresses were kept. AGE is empty where it is not known.

  pushmesh session list --user client:phone-7
  pushmesh session list --by size --limit 20
  pushmesh session list --by address --limit 20 --format json`
}

// pageOfSessions is how many are asked for at a time.
const pageOfSessions = 500

// each calls visit for every session of a user ("": of all) that was created from an address ("":
// from any), in the order of (user, name), until visit returns false.
func each(ctx context.Context, api pushmeshv1.SessionServiceClient, user, address string, sizes bool, visit func(*pushmeshv1.Session) (bool, error)) error {
	for token := ""; ; {
		answer, err := api.List(ctx, &pushmeshv1.SessionServiceListRequest{User: user, Limit: pageOfSessions, PageToken: token, Sizes: sizes})
		if err != nil {
			return err
		}
		for _, s := range answer.GetSessions() {
			if address != "" && s.GetOrigin() != address {
				continue
			}
			if more, err := visit(s); err != nil || !more {
				return err
			}
		}
		if token = answer.GetNextPageToken(); token == "" {
			return nil
		}
	}
}

// Run prints them.
func (c *list) Run(ctx context.Context, stdio cmdline.IO) error {
	if c.Limit < 0 {
		return cmdline.Usage("--limit is below 0")
	}
	return withSessions(ctx, c.RouterFlag, func(ctx context.Context, api pushmeshv1.SessionServiceClient) error {
		switch c.By {
		case "name":
			t := c.sessionTable(stdio.Out)
			shown := 0
			err := each(ctx, api, c.User, c.Address, true, func(s *pushmeshv1.Session) (bool, error) {
				shown++
				return shown != c.Limit, t.row(s)
			})
			if err != nil {
				return err
			}
			return t.Flush()
		case "size":
			return c.bySize(ctx, stdio.Out, api)
		}
		return c.sums(ctx, stdio.Out, api)
	})
}

// bySize prints the largest. It keeps no more than twice as many as are shown.
func (c *list) bySize(ctx context.Context, out io.Writer, api pushmeshv1.SessionServiceClient) error {
	var largest []*pushmeshv1.Session
	bySize := func(a, b *pushmeshv1.Session) int {
		return cmp.Or(cmp.Compare(b.GetKeptBytes(), a.GetKeptBytes()), strings.Compare(a.GetUser(), b.GetUser()), strings.Compare(a.GetName(), b.GetName()))
	}
	cut := func() {
		slices.SortFunc(largest, bySize)
		if c.Limit > 0 {
			largest = largest[:min(len(largest), c.Limit)]
		}
	}
	err := each(ctx, api, c.User, c.Address, true, func(s *pushmeshv1.Session) (bool, error) {
		if largest = append(largest, s); c.Limit > 0 && len(largest) >= 2*c.Limit {
			cut()
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	cut()
	t := c.sessionTable(out)
	for _, s := range largest {
		if err := t.row(s); err != nil {
			return err
		}
	}
	return t.Flush()
}

// sum over the sessions of a user, or of an address.
type sum struct {
	User     string `json:"user,omitempty"`
	Origin   string `json:"origin,omitempty"`
	Sessions uint64 `json:"sessions"`
	Attached uint64 `json:"attached"`
	Filters  uint64 `json:"subscriptions"`
	Cursors  uint64 `json:"cursors"`
	Bytes    uint64 `json:"bytes"`
}

func (s *sum) add(one *pushmeshv1.Session) {
	s.Sessions++
	if one.GetEdge() != "" {
		s.Attached++
	}
	s.Filters += one.GetFilterCount()
	s.Cursors += one.GetCursorCount()
	s.Bytes += one.GetKeptBytes()
}

// sums prints users or addresses, the largest first.
func (c *list) sums(ctx context.Context, out io.Writer, api pushmeshv1.SessionServiceClient) error {
	byUser := c.By == "user"
	all := map[string]*sum{}
	err := each(ctx, api, c.User, c.Address, true, func(s *pushmeshv1.Session) (bool, error) {
		one := sum{User: s.GetUser()}
		if !byUser {
			one = sum{Origin: s.GetOrigin()}
		}
		key := one.User + one.Origin
		if all[key] == nil {
			all[key] = &one
		}
		all[key].add(s)
		return true, nil
	})
	if err != nil {
		return err
	}
	var sorted []*sum
	for _, s := range all {
		sorted = append(sorted, s)
	}
	slices.SortFunc(sorted, func(a, b *sum) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Sessions, a.Sessions), strings.Compare(a.User, b.User), strings.Compare(a.Origin, b.Origin))
	})
	if c.Limit > 0 {
		sorted = sorted[:min(len(sorted), c.Limit)]
	}
	t := c.Table(out, strings.ToUpper(c.By), "SESSIONS", "ATTACHED", "SUBSCRIPTIONS", "CURSORS", "BYTES")
	for _, s := range sorted {
		if err := t.Row(s, s.User+s.Origin, s.Sessions, s.Attached, s.Filters, s.Cursors, s.Bytes); err != nil {
			return err
		}
	}
	return t.Flush()
}

type sessionTable struct {
	*cmdline.Table
	now time.Time
}

func (c *list) sessionTable(out io.Writer) sessionTable {
	return sessionTable{c.Table(out, "USER", "NAME", "EDGE", "SUBSCRIPTIONS", "CURSORS", "BYTES", "AGE", "EXPIRES", "ORIGIN"), time.Now()}
}

func (t sessionTable) row(s *pushmeshv1.Session) error {
	shown := shownSession{
		User: s.GetUser(), Name: s.GetName(), Edge: s.GetEdge(), Filters: s.GetFilterCount(), Cursors: s.GetCursorCount(), Bytes: s.GetKeptBytes(),
		CreatedAt: at(s.GetCreatedAt()), AttachedAt: at(s.GetAttachedAt()), ExpiresAt: at(s.GetExpiresAt()), Origin: s.GetOrigin(),
	}
	age := ""
	if s.GetCreatedAt() != 0 {
		age = t.now.Sub(time.UnixMicro(int64(s.GetCreatedAt()))).Round(time.Second).String()
	}
	return t.Row(shown, shown.User, shown.Name, shown.Edge, shown.Filters, shown.Cursors, shown.Bytes, age, shown.ExpiresAt, shown.Origin)
}

// shownSession is a session as JSON prints it.
type shownSession struct {
	User       string `json:"user"`
	Name       string `json:"name"`
	Edge       string `json:"edge,omitempty"`
	Filters    uint64 `json:"subscriptions"`
	Cursors    uint64 `json:"cursors"`
	Bytes      uint64 `json:"bytes"`
	CreatedAt  string `json:"created_at,omitempty"`
	AttachedAt string `json:"attached_at,omitempty"`
	ExpiresAt  string `json:"expires_at,omitempty"`
	Origin     string `json:"origin,omitempty"`
}

func at(t uint64) string {
	if t == 0 {
		return ""
	}
	return cmdline.ShowTime(t)
}

type remove struct {
	User    string `arg:"" optional:"" help:"User of the session, as list prints it."`
	Name    string `arg:"" optional:"" help:"Name of the session."`
	All     bool   `help:"All sessions of the user."`
	Address string `placeholder:"ADDRESS" help:"All sessions that were created from this address, as list prints it (ORIGIN); with a user, those of this user alone."`
	cmdline.RouterFlag
}

func (remove) Help() string {
	return `Positions and filters go with a session; its dead letters stay. A connection that has it is closed with NOT_FOUND.

  pushmesh session delete client:phone-7 inbox
  pushmesh session delete client:phone-7 --all
  pushmesh session delete --address 192.0.2.7`
}

func (c *remove) check() error {
	switch {
	case c.Name != "" && (c.All || c.Address != ""):
		return cmdline.Usage("give a name, or --all or --address, not both")
	case c.All && c.User == "":
		return cmdline.Usage("--all needs a user")
	case c.Name == "" && !c.All && c.Address == "":
		return cmdline.Usage("give user and name of a session, or a user with --all, or --address")
	}
	return nil
}

// deletesAtATime of one command.
const deletesAtATime = 16

// Run deletes and says how many. What somebody else deleted meanwhile is no error.
func (c *remove) Run(ctx context.Context, stdio cmdline.IO) error {
	if err := c.check(); err != nil {
		return err
	}
	return withSessions(ctx, c.RouterFlag, func(ctx context.Context, api pushmeshv1.SessionServiceClient) error {
		if c.Name != "" {
			_, err := api.Delete(ctx, &pushmeshv1.SessionServiceDeleteRequest{User: c.User, Name: c.Name})
			if err == nil {
				_, err = fmt.Fprintln(stdio.Out, "1 deleted")
			}
			return err
		}
		d := deleter{api: api, slots: make(chan struct{}, deletesAtATime)}
		err := each(ctx, api, c.User, c.Address, false, func(s *pushmeshv1.Session) (bool, error) { return d.begin(ctx, s), nil })
		n, failed := d.end()
		fmt.Fprintf(stdio.Out, "%d deleted\n", n)
		return cmp.Or(failed, err)
	})
}

// deleter deletes several sessions at a time, until one can't be.
type deleter struct {
	api   pushmeshv1.SessionServiceClient
	slots chan struct{}
	work  sync.WaitGroup

	mu      sync.Mutex
	deleted int
	err     error
}

// begin deletes one more; false: there is no sense in going on.
func (d *deleter) begin(ctx context.Context, s *pushmeshv1.Session) bool {
	d.slots <- struct{}{}
	d.mu.Lock()
	failed := d.err != nil
	d.mu.Unlock()
	if failed {
		<-d.slots
		return false
	}
	d.work.Go(func() {
		defer func() { <-d.slots }()
		_, err := d.api.Delete(ctx, &pushmeshv1.SessionServiceDeleteRequest{User: s.GetUser(), Name: s.GetName()})
		d.mu.Lock()
		defer d.mu.Unlock()
		switch {
		case err == nil:
			d.deleted++
		case code.Of(err) != wirev1.Code_CODE_NOT_FOUND && d.err == nil:
			d.err = err
		}
	})
	return true
}

// end waits for what was begun.
func (d *deleter) end() (deleted int, err error) {
	d.work.Wait()
	return d.deleted, d.err
}

// withSessions has no time limit of its own: there may be many sessions, and Ctrl-C ends it.
func withSessions(ctx context.Context, f cmdline.RouterFlag, call func(context.Context, pushmeshv1.SessionServiceClient) error) error {
	return cmdline.Call(ctx, f, 0, pushmeshv1.NewSessionServiceClient, call)
}
