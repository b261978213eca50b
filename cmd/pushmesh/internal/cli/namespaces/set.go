package namespaces

import (
	"context"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

type namespaceSet struct{ policyFlags }

func (namespaceSet) Help() string {
	return `Changes the fields of a prefix's policy that flags name, and no others; a prefix without a policy gets one. --FLAG=false switches off what is on, and
a number or duration of 0 sets the default.

  pushmesh namespace set orders --retention 168h
  pushmesh namespace set room --presence --client-publish
  pushmesh namespace set room --presence=false`
}

// Run merges and prints the policy.
func (c *namespaceSet) Run(ctx context.Context, stdio cmdline.IO, parsed *kong.Context) error {
	given, err := c.policy()
	if err != nil {
		return err
	}
	return withNamespaces(ctx, c.RouterFlag, func(ctx context.Context, api pushmeshv1.NamespaceServiceClient) error {
		before, _, err := policyOf(ctx, api, c.Prefix)
		if err != nil {
			return err
		}
		after := proto.CloneOf(before)
		if merge(after, given, parsed) == 0 {
			return cmdline.Usage("give at least one flag, like --retention 168h (pushmesh namespace set --help lists them)")
		}
		return c.store(ctx, stdio, api, before, after)
	})
}

// merge takes over what flags name, and says how many did.
func merge(into, given *pushmeshv1.Policy, parsed *kong.Context) (named int) {
	from, to := given.ProtoReflect(), into.ProtoReflect()
	for _, p := range parsed.Path {
		if p.Flag == nil {
			continue
		}
		field := to.Descriptor().Fields().ByName(protoreflect.Name(strings.ReplaceAll(p.Flag.Name, "-", "_")))
		switch {
		case field == nil:
			continue // --router and --format
		case from.Has(field):
			to.Set(field, from.Get(field))
		default:
			to.Clear(field)
		}
		named++
	}
	return named
}

// policyOf is the policy that a prefix has, an empty one where it has none.
func policyOf(ctx context.Context, api pushmeshv1.NamespaceServiceClient, prefix string) (p *pushmeshv1.Policy, there bool, err error) {
	answer, err := api.Get(ctx, &pushmeshv1.NamespaceServiceGetRequest{Prefix: prefix})
	switch {
	case code.Of(err) == wirev1.Code_CODE_NOT_FOUND:
		return &pushmeshv1.Policy{}, false, nil
	case err != nil:
		return nil, false, err
	}
	if p = answer.GetNamespace().GetPolicy(); p == nil {
		p = &pushmeshv1.Policy{}
	}
	return p, true, nil
}

// losesNothing refuses to make a durable namespace ephemeral by the way, or to delete what its
// topics keep.
func (c *policyFlags) losesNothing(before, after *pushmeshv1.Policy) error {
	const otherwise = "or use pushmesh namespace set, which changes only what you name, or confirm with --force"
	keeps := func(p *pushmeshv1.Policy) bool { return p.GetKeep() == pushmeshv1.Keep_KEEP_LAST }
	switch {
	case c.Force:
	case before.GetDurable() && !after.GetDurable():
		return cmdline.Usage("namespace %s is durable, and this command would make it ephemeral: messages would no longer be stored. "+
			"Give --durable too, "+otherwise, c.Prefix)
	case keeps(before) && !keeps(after):
		return cmdline.Usage("topics of namespace %s keep their last messages, and this command would delete these. Give --keep last too, "+otherwise, c.Prefix)
	}
	return nil
}

// changes says what is another value in a policy: "durable true -> false, retention 48h0m0s ->
// default".
func changes(before, after *pushmeshv1.Policy) string {
	var all []string
	old, now := before.ProtoReflect(), after.ProtoReflect()
	fields := old.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if !old.Get(f).Equal(now.Get(f)) || old.Has(f) != now.Has(f) {
			all = append(all, fmt.Sprintf("%s %s -> %s", f.Name(), shownField(old, f), shownField(now, f)))
		}
	}
	return strings.Join(all, ", ")
}

func shownField(m protoreflect.Message, f protoreflect.FieldDescriptor) string {
	switch {
	case f.Kind() == protoreflect.BoolKind:
		return m.Get(f).String()
	case !m.Has(f):
		return "default"
	case f.Name() == "client_presence":
		return presenceName(pushmeshv1.ClientPresence(m.Get(f).Enum()))
	case f.Kind() == protoreflect.EnumKind:
		switch f.Name() { // what is the only one beside the default
		case "overflow":
			return overflowName(wirev1.Overflow(m.Get(f).Enum()))
		case "keep":
			return last
		}
		return none
	case f.Kind() == protoreflect.MessageKind:
		if d, ok := m.Get(f).Message().Interface().(*durationpb.Duration); ok {
			return d.AsDuration().String()
		}
		return "{…}"
	}
	return m.Get(f).String()
}
