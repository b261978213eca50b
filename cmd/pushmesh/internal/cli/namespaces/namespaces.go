// Package namespaces has the commands on policies of topic prefixes.
package namespaces

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Command is the command pushmesh namespace.
type Command struct {
	Put    namespacePut    `cmd:"" help:"Set the whole policy of a prefix: fields without a flag get their defaults."`
	Set    namespaceSet    `cmd:"" help:"Change parts of a prefix's policy: fields without a flag stay as they are."`
	Get    namespaceGet    `cmd:"" help:"Show the policy of a prefix."`
	List   namespaceList   `cmd:"" help:"Show all policies."`
	Delete namespaceDelete `cmd:"" help:"Delete the policy of a prefix, unless it is a built-in one."`
}

// Help of the command.
func (Command) Help() string {
	return `A namespace is a topic prefix of whole levels with a policy; the longest prefix that matches a topic applies. "default" holds the policy
of topics that no prefix covers.

  pushmesh namespace put orders --durable --retention 168h --ack-timeout 5s
  pushmesh namespace set orders --client-publish
  pushmesh namespace get orders
  pushmesh namespace list --format json
  pushmesh namespace delete orders`
}

type namespacePut struct{ policyFlags }

// policyFlags are a policy. Their names are those of pushmesh.v1.Policy's fields.
type policyFlags struct {
	Prefix                string        `arg:"" help:"Topic prefix, like orders or tenant/7."`
	Durable               bool          `help:"Store messages in a log."`
	Retention             time.Duration `placeholder:"D" help:"How long messages stay in the log (24h; at most 8784h)."`
	AckTimeout            time.Duration `placeholder:"D" help:"Send a message again that is not ACKed within this time (2s)."`
	MaxRedeliveries       *uint32       `placeholder:"N" help:"How often a message is sent again on one connection (2)."`
	MaxAttempts           uint32        `placeholder:"N" help:"Attempts on all connections together before a message becomes a dead letter (16)."`
	DeadLetterTopic       string        `placeholder:"TOPIC" help:"Topic to which dead letters are published ($$dead/PREFIX)."`
	Overflow              string        `enum:"default,drop-oldest,conflate,disconnect" default:"default" help:"What happens when a subscriber's queue is full: default, drop-oldest, conflate or disconnect."`
	Presence              bool          `help:"Keep presence of its topics (see pushmesh presence)."`
	MaxPayload            uint32        `placeholder:"BYTES" help:"Largest payload, in bytes (262144)."`
	ProducerRate          uint32        `placeholder:"N" help:"Messages a second from one producer (the router's setting)."`
	ProducerInFlight      uint32        `placeholder:"N" help:"Unanswered messages of one producer (the router's setting)."`
	ClientPublish         bool          `help:"Let clients publish over their connections."`
	ClientSubscribe       string        `enum:"granted,none" default:"granted" help:"Which clients may subscribe: granted (those with the grant, and everybody at an edge with --open) or none. Backends always may."`
	ClientHistory         string        `enum:"granted,none" default:"granted" help:"Which clients may read older messages: granted (those that may subscribe) or none (only start LIVE, no session, no group)."`
	ClientPresence        string        `enum:"off,counts,members" default:"off" help:"What clients see of who is in a topic: off, counts (how many users) or members (which users, and what they say of themselves)."`
	ClientPresenceMembers uint32        `placeholder:"N" help:"Most users of a topic that clients see by name; with more of them they see counts (200; at most 500)."`
	Keep                  string        `enum:"retention,last" default:"retention" help:"What stays beyond the retention: retention (nothing) or last (each topic's newest message, until one without a payload deletes it)."`
	MaxKept               uint32        `placeholder:"N" help:"Most topics that keep a message, with --keep last (1000000)."`
	DedupeWindow          time.Duration `placeholder:"D" help:"How long dedupe keys are remembered (2m; at most 24h)."`
	DeliveredEvents       bool          `help:"Publish an event ($events/delivered/…) for each ACK of a durable message, while somebody subscribes to such events."`
	Rank                  string        `type:"existingfile" placeholder:"FILE" help:"Rank policy: a RankPolicy as JSON."`
	Claims                string        `type:"existingfile" placeholder:"FILE" help:"Claim policy: a ClaimPolicy as JSON; {} has the defaults."`
	Force                 bool          `help:"Allow a durable namespace to become ephemeral, which stops storing its messages, or --keep last to end, which deletes what its topics keep."`
	cmdline.RouterFlag
	cmdline.FormatFlag
}

func (c *policyFlags) policy() (*pushmeshv1.Policy, error) {
	p := &pushmeshv1.Policy{
		Durable: c.Durable, Retention: cmdline.Duration(c.Retention), AckTimeout: cmdline.Duration(c.AckTimeout), MaxRedeliveries: c.MaxRedeliveries,
		MaxAttempts: c.MaxAttempts, DeadLetterTopic: c.DeadLetterTopic, Overflow: overflows[c.Overflow], Presence: c.Presence,
		MaxPayload: c.MaxPayload, ProducerRate: c.ProducerRate, ProducerInFlight: c.ProducerInFlight, ClientPublish: c.ClientPublish,
		ClientSubscribe: subscribers[c.ClientSubscribe], ClientHistory: readers[c.ClientHistory],
		ClientPresence: presences[c.ClientPresence], ClientPresenceMembers: c.ClientPresenceMembers,
		DedupeWindow: cmdline.Duration(c.DedupeWindow), DeliveredEvents: c.DeliveredEvents,
		Keep: keeps[c.Keep], MaxKept: c.MaxKept,
	}
	if c.Rank != "" {
		p.Rank = &pushmeshv1.RankPolicy{}
		if err := cmdline.ReadProto(c.Rank, p.GetRank()); err != nil {
			return nil, err
		}
	}
	if c.Claims != "" {
		p.Claims = &pushmeshv1.ClaimPolicy{}
		if err := cmdline.ReadProto(c.Claims, p.GetClaims()); err != nil {
			return nil, err
		}
	}
	return p, nil
}

var overflows = map[string]wirev1.Overflow{
	"default":     wirev1.Overflow_OVERFLOW_DEFAULT,
	"drop-oldest": wirev1.Overflow_OVERFLOW_DROP_OLDEST,
	"conflate":    wirev1.Overflow_OVERFLOW_CONFLATE,
	"disconnect":  wirev1.Overflow_OVERFLOW_DISCONNECT,
}

var subscribers = map[string]pushmeshv1.ClientSubscribe{
	"granted": pushmeshv1.ClientSubscribe_CLIENT_SUBSCRIBE_GRANTED_UNSPECIFIED,
	none:      pushmeshv1.ClientSubscribe_CLIENT_SUBSCRIBE_NONE,
}

var readers = map[string]pushmeshv1.ClientHistory{
	"granted": pushmeshv1.ClientHistory_CLIENT_HISTORY_GRANTED_UNSPECIFIED,
	none:      pushmeshv1.ClientHistory_CLIENT_HISTORY_NONE,
}

var keeps = map[string]pushmeshv1.Keep{
	"retention": pushmeshv1.Keep_KEEP_RETENTION_UNSPECIFIED,
	last:        pushmeshv1.Keep_KEEP_LAST,
}

var presences = map[string]pushmeshv1.ClientPresence{
	"off":     pushmeshv1.ClientPresence_CLIENT_PRESENCE_OFF_UNSPECIFIED,
	"counts":  pushmeshv1.ClientPresence_CLIENT_PRESENCE_COUNTS,
	"members": pushmeshv1.ClientPresence_CLIENT_PRESENCE_MEMBERS,
}

// presenceName is how --client-presence names it.
func presenceName(p pushmeshv1.ClientPresence) string {
	for name, one := range presences {
		if one == p {
			return name
		}
	}
	return p.String()
}

func (namespacePut) Help() string {
	return `Replaces the policy as a whole, and prints what changes; pushmesh namespace set changes only the fields that flags name.

  pushmesh namespace put orders --durable --retention 168h --ack-timeout 5s --max-attempts 5
  pushmesh namespace put ticks --overflow conflate
  pushmesh namespace put state --durable --keep last     # for pushmesh kept
  pushmesh namespace put news --rank rank.json           # {"expression": {"expression": "features.quality"}}, for pushmesh rank --namespace
  pushmesh namespace put printer --claims claims.json    # {"ttl": "20s", "holders": 2}, for pushmesh claim`
}

// Run sets the policy and prints it.
func (c *namespacePut) Run(ctx context.Context, stdio cmdline.IO) error {
	policy, err := c.policy()
	if err != nil {
		return err
	}
	return withNamespaces(ctx, c.RouterFlag, func(ctx context.Context, api pushmeshv1.NamespaceServiceClient) error {
		before, there, err := policyOf(ctx, api, c.Prefix)
		if err != nil {
			return err
		}
		if !there {
			before = policy
		}
		return c.store(ctx, stdio, api, before, policy)
	})
}

// store puts a policy in the place of the one from before, says what changes, and prints it.
func (c *policyFlags) store(ctx context.Context, stdio cmdline.IO, api pushmeshv1.NamespaceServiceClient, before, after *pushmeshv1.Policy) error {
	if err := c.losesNothing(before, after); err != nil {
		return err
	}
	answer, err := api.Put(ctx, &pushmeshv1.NamespaceServicePutRequest{Namespace: &pushmeshv1.Namespace{Prefix: c.Prefix, Policy: after}})
	if err != nil {
		return err
	}
	if what := changes(before, after); what != "" {
		fmt.Fprintf(stdio.Err, "%s: %s\n", c.Prefix, what)
	}
	warnLagging(stdio.Err, answer.GetLagging())
	return printNamespaces(stdio.Out, c.FormatFlag, answer.GetNamespace())
}

// warnLagging names processes that may not go by a change yet.
func warnLagging(w io.Writer, lagging []string) {
	if len(lagging) > 0 {
		_, _ = fmt.Fprintf(w, "the change is stored, but %s may not use it yet: publish only when their metric pushmesh_<tier>_namespaces_version equals that of the other nodes\n", strings.Join(lagging, ", "))
	}
}

type namespaceGet struct {
	Prefix string `arg:"" help:"Topic prefix."`
	cmdline.RouterFlag
	cmdline.FormatFlag
}

func (namespaceGet) Help() string {
	return `  pushmesh namespace get orders
  pushmesh namespace get room --format json`
}

// Run prints the policy.
func (c *namespaceGet) Run(ctx context.Context, stdio cmdline.IO) error {
	return withNamespaces(ctx, c.RouterFlag, func(ctx context.Context, api pushmeshv1.NamespaceServiceClient) error {
		answer, err := api.Get(ctx, &pushmeshv1.NamespaceServiceGetRequest{Prefix: c.Prefix})
		if err != nil {
			return err
		}
		return printNamespaces(stdio.Out, c.FormatFlag, answer.GetNamespace())
	})
}

type namespaceList struct {
	cmdline.RouterFlag
	cmdline.FormatFlag
}

func (namespaceList) Help() string {
	return `  pushmesh namespace list
  pushmesh namespace list --format json`
}

// Run prints every policy.
func (c *namespaceList) Run(ctx context.Context, stdio cmdline.IO) error {
	return withNamespaces(ctx, c.RouterFlag, func(ctx context.Context, api pushmeshv1.NamespaceServiceClient) error {
		answer, err := api.List(ctx, &pushmeshv1.NamespaceServiceListRequest{})
		if err != nil {
			return err
		}
		return printNamespaces(stdio.Out, c.FormatFlag, answer.GetNamespaces()...)
	})
}

type namespaceDelete struct {
	Prefix string `arg:"" help:"Topic prefix."`
	cmdline.RouterFlag
}

func (namespaceDelete) Help() string {
	return `From then on the next shorter prefix applies to its topics.

  pushmesh namespace delete orders`
}

// Run removes the policy.
func (c *namespaceDelete) Run(ctx context.Context, stdio cmdline.IO) error {
	return withNamespaces(ctx, c.RouterFlag, func(ctx context.Context, api pushmeshv1.NamespaceServiceClient) error {
		answer, err := api.Delete(ctx, &pushmeshv1.NamespaceServiceDeleteRequest{Prefix: c.Prefix})
		warnLagging(stdio.Err, answer.GetLagging())
		return err
	})
}

func withNamespaces(ctx context.Context, f cmdline.RouterFlag, call func(context.Context, pushmeshv1.NamespaceServiceClient) error) error {
	return cmdline.Call(ctx, f, cmdline.CallTimeout, pushmeshv1.NewNamespaceServiceClient, call)
}

func printNamespaces(w io.Writer, f cmdline.FormatFlag, all ...*pushmeshv1.Namespace) error {
	t := f.Table(w, "PREFIX", "DURABLE", "RETENTION", "ACK TIMEOUT", "OVERFLOW", "CLIENTS", "VERSION", "BUILT IN")
	for _, n := range all {
		s := shownPolicy(n)
		if err := t.Row(s, s.Prefix, s.Durable, cmdline.OrDash(s.Retention), cmdline.OrDash(s.AckTimeout), s.Overflow, clients(n.GetPolicy()), s.Version, s.Builtin); err != nil {
			return err
		}
	}
	return t.Flush()
}
