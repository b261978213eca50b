// Package keys is the command pushmesh key.
package keys

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/internal/identity/backends"
)

// Command is the command pushmesh key.
type Command struct {
	Create create `cmd:"" help:"Make a key for a backend, and print it once."`
	List   list   `cmd:"" help:"List the keys in a backends file."`
	Revoke revoke `cmd:"" help:"Take a key out of a backends file."`
}

// Help of the command.
func (Command) Help() string {
	return `API keys are how backends prove to routers who they are (router --backends FILE). The file has the hash of a key, never the key. Routers read it again
within 2 seconds of a change; copy it to each of them.

  pushmesh key create --backends backends.yaml --name orders --role 'publisher:orders/#' --expires 90d > orders.key
  pushmesh pub orders/1 hello --router-token-file orders.key
  pushmesh key list --backends backends.yaml
  pushmesh key revoke --backends backends.yaml 8f53ea7a803dc723`
}

type fileFlag struct {
	Backends string `required:"" placeholder:"FILE" help:"The backends file of the routers, YAML or JSON."`
}

type create struct {
	fileFlag
	Name    string        `required:"" placeholder:"NAME" help:"Name of the backend; it is added if the file has it not."`
	Role    []string      `sep:"none" placeholder:"ROLE" help:"What a backend that is added may do: publisher:FILTER, consumer:FILTER, claimant:FILTER, auditor or operator; may be given several times."`
	Expires time.Duration `placeholder:"D" help:"The key ends after this time, such as 90d; without it, never."`
}

// Run makes the key. It alone is on standard output.
func (c *create) Run(stdio cmdline.IO) error {
	if c.Expires < 0 {
		return cmdline.Usage("--expires is %v, it must be above 0", c.Expires)
	}
	for _, r := range c.Role {
		if _, err := backends.ParseRole(r); err != nil {
			return cmdline.Usage("--role: %w", err)
		}
	}
	now := time.Now()
	var expires time.Time
	if c.Expires > 0 {
		expires = now.Add(c.Expires)
	}
	k, text, err := backends.Create(c.Backends, c.Name, c.Role, now, expires)
	if err != nil {
		return err
	}
	end := "it never ends"
	if !expires.IsZero() {
		end = "it ends at " + k.Expires.Format(time.RFC3339)
	}
	_, err = fmt.Fprintln(stdio.Out, text)
	_, note := fmt.Fprintf(stdio.Err, "pushmesh: key %s of backend %s is in %s; %s. It is shown this once.\n", k.ID, c.Name, c.Backends, end)
	return errors.Join(err, note)
}

type list struct {
	fileFlag
	cmdline.FormatFlag
}

// row is a key as it is listed.
type row struct {
	ID      string   `json:"id"`
	Backend string   `json:"backend"`
	Created string   `json:"created,omitempty"`
	Expires string   `json:"expires,omitempty"`
	State   string   `json:"state"`
	Roles   []string `json:"roles"`
}

// Run lists the keys.
func (c *list) Run(stdio cmdline.IO) error {
	all, err := backends.List(c.Backends)
	if err != nil {
		return err
	}
	for _, k := range all {
		r := row{ID: k.ID, Backend: k.Backend, Roles: k.Roles, State: "good", Created: stamp(k.Created), Expires: stamp(k.Expires)}
		if !k.Expires.IsZero() && !time.Now().Before(k.Expires.Time) {
			r.State = "ended"
		}
		if c.Format == "json" {
			err = cmdline.WriteJSON(stdio.Out, r)
		} else {
			_, err = fmt.Fprintf(stdio.Out, "%s\t%s\t%s\t%s\t%s\n", r.ID, r.Backend, r.State, or(r.Expires, "never ends"), strings.Join(r.Roles, " "))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

func stamp(s backends.Stamp) string {
	if s.IsZero() {
		return ""
	}
	return s.Format(time.RFC3339)
}

type revoke struct {
	fileFlag
	ID string `arg:"" help:"Id of the key, which list shows."`
}

// Run takes the key out.
func (c *revoke) Run(stdio cmdline.IO) error {
	if err := backends.Revoke(c.Backends, c.ID); err != nil {
		return err
	}
	_, err := fmt.Fprintf(stdio.Err, "pushmesh: key %s is no longer in %s: routers that have this file refuse it within 2 seconds, and end what it has begun\n", c.ID, c.Backends)
	return err
}
