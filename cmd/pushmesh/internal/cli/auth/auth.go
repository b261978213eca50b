// Package auth has the commands about who somebody is and what they may do.
package auth

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/identity/token"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Command is the command pushmesh auth.
type Command struct {
	Explain     Explain     `cmd:"" help:"Say who a token is of, and why they may or may not do something."`
	Revoke      revoke      `cmd:"" help:"Make the tokens of a user void, or a single token, and close the connections that came in with them."`
	Revocations revocations `cmd:"" help:"Show what is revoked."`
	Restore     restore     `cmd:"" help:"End a revocation before its time."`
}

// Explain is the command pushmesh auth explain.
type Explain struct {
	Issuers   string `placeholder:"FILE" help:"Issuers file of the edges; keys are fetched from where it says, which an edge does only as --outbound-allow lets it."`
	TokenFile string `name:"token-file" placeholder:"FILE" help:"Explain the token (JWT) in this file; - reads standard input."`

	User  string   `placeholder:"NAME" help:"Explain a user of this name instead of a token, to try filters; it has the rules of --grant."`
	Grant []string `sep:"none" placeholder:"VERB=FILTER" help:"Rule of --user: subscribe, publish, claim or group, and a filter, in which {user} stands for the name (of group: GROUP/FILTER); may be given several times."`

	Teams bool `help:"Ask a router which teams the user is in, and look at what these grant, too."`

	Verb     string `enum:",subscribe,publish,claim,group" default:"" placeholder:"VERB" help:"What to do: subscribe, publish, claim or group; without it everything that is allowed is shown."`
	Topic    string `placeholder:"FILTER" help:"To which topic or filter (with claim: which resource)."`
	Group    string `placeholder:"NAME" help:"As a member of which group, with --verb group."`
	ClientID string `name:"client-id" placeholder:"ID" help:"Say also whether a connection may have this client id."`
	cmdline.RouterFlag
	cmdline.FormatFlag
}

// Help of the command.
func (Explain) Help() string {
	return `Asks no mesh, but with --teams: it checks the token as edges do, and looks at its rules. The exit code is 0 if everything that was asked for is allowed, and 1 if the token
or anything else is refused. The token itself is never shown.

  pushmesh auth explain --issuers issuers.yaml --token-file ann.jwt
  pushmesh auth explain --issuers issuers.yaml --token-file - --verb publish --topic room/7/chat < ann.jwt
  pushmesh auth explain --issuers issuers.yaml --token-file ann.jwt --teams
  pushmesh auth explain --user ann --grant subscribe=room/+/chat --verb subscribe --topic 'room/#'
  pushmesh auth explain --user ann --grant group=workers/jobs/# --grant subscribe=jobs/# --verb group --group workers --topic jobs/7

What is allowed here may be refused by the policy of a namespace, and by limits, which a mesh alone knows.`
}

// check finds flags that do not go together.
func (c *Explain) check() error {
	switch {
	case (c.TokenFile == "") == (c.User == ""):
		return cmdline.Usage("it needs either --token-file (with --issuers) or --user")
	case c.TokenFile != "" && c.Issuers == "":
		return cmdline.Usage("--token-file needs --issuers")
	case c.TokenFile != "" && len(c.Grant) > 0:
		return cmdline.Usage("--grant is for --user: a token has its own rules")
	case c.User != "" && c.Issuers != "":
		return cmdline.Usage("--issuers is for --token-file")
	case (c.Verb == "") != (c.Topic == ""):
		return cmdline.Usage("--verb and --topic need each other")
	case (c.Verb == identity.Group.String()) != (c.Group != ""):
		return cmdline.Usage("--verb group and --group need each other")
	case strings.Contains(c.Group, "/"):
		return cmdline.Usage("--group %q must not contain /", c.Group)
	case len(c.ClientID) > identity.MaxClientID:
		return cmdline.Usage("--client-id has %d bytes, %d at most", len(c.ClientID), identity.MaxClientID)
	}
	if c.Topic != "" {
		if err := topic.CheckFilter(c.Topic); err != nil {
			return cmdline.Usage("--topic: %w", err)
		}
	}
	return nil
}

// Run explains.
func (c *Explain) Run(ctx context.Context, stdio cmdline.IO) error {
	if err := c.check(); err != nil {
		return err
	}
	who, from, err := c.principal(ctx, stdio)
	refusal := code.From(err)
	switch {
	case err == nil:
	case refusal.Code == wirev1.Code_CODE_UNAUTHENTICATED || refusal.Code == wirev1.Code_CODE_TOKEN_EXPIRED:
		who = nil
	default:
		return err // it is not known
	}
	if who != nil && c.Teams {
		if who, err = c.withTeams(ctx, who); err != nil {
			return err
		}
	}
	a := c.explain(who, refusal)
	a.Keys = from
	if c.Format == "json" {
		err = cmdline.WriteJSON(stdio.Out, a)
	} else {
		err = a.print(stdio.Out, time.Now())
	}
	if err == nil && !a.Allowed {
		err = cmdline.ErrReported
	}
	return err
}

// principal is who is explained, and where the keys are from that prove it; nil: nothing is proven.
// Its error is a *code.Error where a token is refused.
func (c *Explain) principal(ctx context.Context, stdio cmdline.IO) (*identity.Principal, *keys, error) {
	if c.User != "" {
		who, err := c.user()
		return who, nil, err
	}
	issuers, err := token.ReadIssuers(c.Issuers)
	if err != nil {
		return nil, nil, cmdline.Usage("--issuers: %w", err)
	}
	text, err := cmdline.ReadToken(c.TokenFile, stdio.In)
	if err != nil {
		return nil, nil, cmdline.Usage("--token-file: %w", err)
	}
	who, err := verify(ctx, issuers, text, stdio.Err)
	if err != nil {
		return nil, nil, err
	}
	return who, keysOf(issuers, who.Proof.Issuer), nil
}

// user is the principal of --user and --grant.
func (c *Explain) user() (*identity.Principal, error) {
	p := &identity.Principal{User: c.User}
	var rules []identity.Rule
	for i, text := range c.Grant {
		name, filter, _ := strings.Cut(text, "=")
		verb, ok := identity.ParseVerb(name)
		if !ok || filter == "" {
			return nil, cmdline.Usage("--grant %q: it must be VERB=FILTER, and VERB subscribe, publish, claim or group", text)
		}
		rules = append(rules, identity.Rule{Verb: verb, Filter: filter, Source: fmt.Sprintf("--grant[%d]", i)})
	}
	var err error
	if p.Grants, err = identity.NewGrants(rules); err != nil {
		return nil, cmdline.Usage("%w", err)
	}
	if err := p.Check(); err != nil {
		return nil, cmdline.Usage("--user: %w", err)
	}
	return p, nil
}

// verify checks a token, and tells errOut why keys can't be had.
func verify(ctx context.Context, issuers []token.Issuer, text string, errOut io.Writer) (*identity.Principal, error) {
	log := &keyLog{Handler: slog.DiscardHandler, faults: make(chan fault, len(issuers))}
	v := token.New(issuers, token.Options{Log: slog.New(log)})
	if err := v.Start(ctx); err != nil {
		return nil, err
	}
	who, err := v.Verify(ctx, text)
	if why := code.From(err); why != nil && why.Code == wirev1.Code_CODE_UNAVAILABLE {
		log.tell(why.Message, errOut)
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	if stopped := v.Stop(stopping); err == nil && stopped != nil {
		return nil, stopped
	}
	return who, err
}
