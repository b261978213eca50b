package request

import (
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

func rules() *Rules {
	table := policy.NewTable([]*pushmeshv1.Namespace{
		{Prefix: "open", Policy: &pushmeshv1.Policy{ClientPublish: true, MaxPayload: 4}},
		{Prefix: "shut", Policy: &pushmeshv1.Policy{ClientSubscribe: pushmeshv1.ClientSubscribe_CLIENT_SUBSCRIBE_NONE}},
		{Prefix: "live", Policy: &pushmeshv1.Policy{ClientHistory: pushmeshv1.ClientHistory_CLIENT_HISTORY_NONE}},
		{Prefix: "seat", Policy: &pushmeshv1.Policy{Claims: &pushmeshv1.ClaimPolicy{Clients: true, MaxClientPriority: 3}}},
	})
	return &Rules{PolicyFor: table.For, Refuses: func(string) *code.Error { return nil }, Fits: func(string, bool) bool { return true }, Namespaces: func() *policy.Table { return table }, Subscriptions: 2, WildcardTopics: 3, PublishWindow: 2}
}

func expect(t *testing.T, what string, why *code.Error, want wirev1.Code) {
	t.Helper()
	if why == nil && want != wirev1.Code_CODE_OK || why != nil && why.Code != want {
		t.Errorf("%s: %v, want %v", what, why, want)
	}
}

const (
	good    = wirev1.Code_CODE_OK
	invArg  = wirev1.Code_CODE_INVALID_ARGUMENT
	unsupp  = wirev1.Code_CODE_UNSUPPORTED
	forbid  = wirev1.Code_CODE_FORBIDDEN
	drains  = wirev1.Code_CODE_DRAINING
	badName = wirev1.Code_CODE_BAD_TOPIC
)

func TestHello(t *testing.T) {
	for what, one := range map[string]struct {
		m    *wirev1.Hello
		want wirev1.Code
	}{
		"good":        {&wirev1.Hello{Version: wire.Version, ClientId: strings.Repeat("x", maxClientID), Session: strings.Repeat("x", maxSession)}, good},
		"version":     {&wirev1.Hello{Version: wire.Version + 1}, unsupp},
		"long client": {&wirev1.Hello{Version: wire.Version, ClientId: strings.Repeat("x", maxClientID+1)}, invArg},
		"long name":   {&wirev1.Hello{Version: wire.Version, Session: strings.Repeat("x", maxSession+1)}, invArg},
		"control":     {&wirev1.Hello{Version: wire.Version, Session: "a\x7f"}, invArg},
	} {
		expect(t, what, Hello(one.m), one.want)
	}
}

func TestPublish(t *testing.T) {
	r := rules()
	for what, one := range map[string]struct {
		c    Client
		m    *wirev1.Publish
		want wirev1.Code
	}{
		"good":      {Client{Publishes: 1}, &wirev1.Publish{Id: 1, Topic: "open/1", Payload: []byte("1234")}, good},
		"id in use": {Client{IDInUse: true}, &wirev1.Publish{Id: 1, Topic: "open/1"}, invArg},
		"window":    {Client{Publishes: 2}, &wirev1.Publish{Id: 1, Topic: "open/1"}, wirev1.Code_CODE_RATE_LIMITED},
		"draining":  {Client{Draining: true}, &wirev1.Publish{Id: 1, Topic: "open/1"}, drains},
		"bad topic": {Client{}, &wirev1.Publish{Id: 1, Topic: "open/+"}, badName},
		"forbidden": {Client{}, &wirev1.Publish{Id: 1, Topic: "room/1"}, forbid},
		"dedupe":    {Client{}, &wirev1.Publish{Id: 1, Topic: "open/1", DedupeKey: "k"}, unsupp},
		"payload":   {Client{}, &wirev1.Publish{Id: 1, Topic: "open/1", Payload: []byte("12345")}, wirev1.Code_CODE_PAYLOAD_TOO_LARGE},
	} {
		expect(t, what, r.Publish(one.c, one.m), one.want)
	}
}

func TestSubscribe(t *testing.T) {
	r := rules()
	session := wirev1.Start_START_SESSION
	for what, one := range map[string]struct {
		c    Client
		m    *wirev1.Subscribe
		want wirev1.Code
	}{
		"good":             {Client{Subscriptions: 1}, &wirev1.Subscribe{Id: 1, Filter: "a/+"}, good},
		"session":          {Client{HasSession: true}, &wirev1.Subscribe{Id: 1, Filter: "a", Start: session}, good},
		"no session":       {Client{}, &wirev1.Subscribe{Id: 1, Filter: "a", Start: session}, invArg},
		"too many":         {Client{Subscriptions: 2}, &wirev1.Subscribe{Id: 1, Filter: "a"}, wirev1.Code_CODE_TOO_MANY_SUBSCRIPTIONS},
		"draining":         {Client{Draining: true}, &wirev1.Subscribe{Id: 1, Filter: "a"}, drains},
		"the mesh's own":   {Client{}, &wirev1.Subscribe{Id: 1, Filter: "$events/#"}, forbid},
		"a backend's":      {Client{Backend: true}, &wirev1.Subscribe{Id: 1, Filter: "$events/#"}, good},
		"dead letters":     {Client{}, &wirev1.Subscribe{Id: 1, Filter: "$dead/#"}, forbid},
		"like dead":        {Client{}, &wirev1.Subscribe{Id: 1, Filter: "$deadly"}, forbid},
		"many positions":   {Client{}, &wirev1.Subscribe{Id: 1, Filter: "a", Start: wirev1.Start_START_AFTER_SEQ, Positions: make([]*wirev1.Position, 4)}, wirev1.Code_CODE_TOO_MANY_TOPICS},
		"seq":              {Client{}, &wirev1.Subscribe{Id: 1, Filter: "a", Seq: 1}, invArg},
		"no rank policy":   {Client{}, &wirev1.Subscribe{Id: 1, Filter: "a", RankTopK: 1}, invArg},
		"group":            {Client{}, &wirev1.Subscribe{Id: 1, Filter: "a", Group: strings.Repeat("g", 64)}, good},
		"long group":       {Client{}, &wirev1.Subscribe{Id: 1, Filter: "a", Group: strings.Repeat("g", 65)}, invArg},
		"key alone":        {Client{}, &wirev1.Subscribe{Id: 1, Filter: "a", GroupKey: "header:k"}, invArg},
		"group's overflow": {Client{}, &wirev1.Subscribe{Id: 1, Filter: "a", Group: "g", Overflow: wirev1.Overflow_OVERFLOW_CONFLATE}, unsupp},
	} {
		expect(t, what, r.Subscribe(one.c, one.m), one.want)
	}
}

func TestClaim(t *testing.T) {
	r := rules()
	release := wirev1.Claim_OP_RELEASE
	for what, one := range map[string]struct {
		c    Client
		m    *wirev1.Claim
		want wirev1.Code
	}{
		"good":        {Client{}, &wirev1.Claim{Id: 1, Resource: "seat/1", Priority: 3}, good},
		"priority":    {Client{}, &wirev1.Claim{Id: 1, Resource: "seat/1", Priority: 4}, forbid},
		"no token":    {Client{}, &wirev1.Claim{Id: 1, Resource: "seat/1", Op: release}, invArg},
		"backend":     {Client{Backend: true}, &wirev1.Claim{Id: 1, Resource: "seat/1"}, unsupp},
		"no policy":   {Client{}, &wirev1.Claim{Id: 1, Resource: "room/1"}, forbid},
		"draining":    {Client{Draining: true}, &wirev1.Claim{Id: 1, Resource: "seat/1"}, drains},
		"ends though": {Client{Draining: true}, &wirev1.Claim{Id: 1, Resource: "seat/1", Op: release, Token: 1}, good},
	} {
		expect(t, what, r.Claim(one.c, nil, one.m), one.want)
	}
}

// What a namespace lets no client do is refused, whatever it is granted, and by the rule's name.
func TestRulesOfNamespaces(t *testing.T) {
	r := rules()
	everything, err := identity.NewGrants([]identity.Rule{{Verb: identity.Subscribe, Filter: "#"}, {Verb: identity.Group, Filter: "g/#"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]Client{
		"nameless": {HasSession: true}, "known": {HasSession: true, Known: true, Rights: identity.Rights{User: "ann", Grants: everything}}, "backend": {HasSession: true, Backend: true},
	} {
		for _, one := range []struct {
			m    *wirev1.Subscribe
			rule string // "": granted
		}{
			{&wirev1.Subscribe{Filter: "shut"}, "shut"},
			{&wirev1.Subscribe{Filter: "shut/1"}, "shut"},
			{&wirev1.Subscribe{Filter: "shut/+"}, "shut"},
			{&wirev1.Subscribe{Filter: "+/1"}, "shut"},
			{&wirev1.Subscribe{Filter: "#"}, "shut"},
			{&wirev1.Subscribe{Filter: "shut/1", Group: "g"}, "shut"},
			{&wirev1.Subscribe{Filter: "shutter"}, ""},
			{&wirev1.Subscribe{Filter: "room/#", Start: wirev1.Start_START_EARLIEST}, ""},
			{&wirev1.Subscribe{Filter: "live/1"}, ""},
			{&wirev1.Subscribe{Filter: "live/#", Ack: true}, ""},
			{&wirev1.Subscribe{Filter: "live/1", Start: wirev1.Start_START_EARLIEST}, "live"},
			{&wirev1.Subscribe{Filter: "live/#", Start: wirev1.Start_START_LAST_N, Seq: 1}, "live"},
			{&wirev1.Subscribe{Filter: "live/1", Start: wirev1.Start_START_AFTER_SEQ, Seq: 1, Epoch: 1}, "live"},
			{&wirev1.Subscribe{Filter: "live/1", Start: wirev1.Start_START_SESSION}, "live"},
			{&wirev1.Subscribe{Filter: "live/1", Positions: []*wirev1.Position{{Topic: "live/1", Epoch: 1}}}, "live"},
			{&wirev1.Subscribe{Filter: "live/1", Group: "g"}, "live"},
		} {
			one.m.Id = 1
			why := r.Subscribe(c, one.m)
			switch {
			case one.rule == "" || c.Backend:
				expect(t, name+": "+one.m.String(), why, good)
			case why == nil || why.Code != forbid || !strings.Contains(why.Message, "rule namespace:"+one.rule+","):
				t.Errorf("%s: %v: %v", name, one.m, why)
			}
		}
	}
}
