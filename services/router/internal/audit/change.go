// Package audit tells of what operators change: who, what, what was there before and what is there
// after, and what came of it. Each change is a line of the router's log and a message on $audit.
package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// maxState is the most bytes of what was there before, and of what is there after; the rest is cut
// off.
const maxState = 4 << 10

// MaxWhole is the same of what is told whole. Twice that, where all of it has to be escaped, is a
// message on $audit.
const MaxWhole = 96 << 10

// Whole is a state of which nothing may be missing, such as who was given which rights.
type Whole struct{ Of any }

// cutMark is what a text that was cut ends with.
const cutMark = "…"

// Change is what a handler says of what it changes. The one of a call is in its context. It is safe
// for concurrent use, since a handler may go on when its call has ended.
type Change struct {
	mu            sync.Mutex
	before, after json.RawMessage
}

type key struct{}

// With is a context whose handler says what it changes.
func With(ctx context.Context) (context.Context, *Change) {
	c := &Change{}
	return context.WithValue(ctx, key{}, c), c
}

func of(ctx context.Context) *Change {
	c, _ := ctx.Value(key{}).(*Change)
	return c
}

// Asked reports whether anybody wants to know what a call changes: otherwise nothing need be read
// for it.
func Asked(ctx context.Context) bool { return of(ctx) != nil }

// Before says what was there before the change: a proto.Message, or what encoding/json knows. nil
// is nothing; an error says that it is not known.
func Before(ctx context.Context, v any) {
	if c := of(ctx); c != nil {
		s := state(v)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.before = s
	}
}

// After says what is there after the change, as Before.
func After(ctx context.Context, v any) {
	if c := of(ctx); c != nil {
		s := state(v)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.after = s
	}
}

// States are what was said; empty: nothing was. They must not be changed.
func (c *Change) States() (before, after json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.before, c.after
}

// state is JSON, without spaces. What is too long is a JSON string with its beginning.
func state(v any) json.RawMessage {
	var text []byte
	var err error
	most := maxState
	if all, is := v.(Whole); is {
		v, most = all.Of, MaxWhole
	}
	switch v := v.(type) {
	case error:
		text, err = json.Marshal("unknown: " + code.Name(code.Of(v)))
	case proto.Message:
		text, err = protojson.Marshal(safe(v))
	default:
		text, err = json.Marshal(v)
	}
	var tight bytes.Buffer
	if err == nil {
		err = json.Compact(&tight, text)
	}
	if err != nil {
		return json.RawMessage(`"unknown: it can't be encoded"`)
	}
	if tight.Len() <= most {
		return tight.Bytes()
	}
	text, err = json.Marshal(Cut(tight.String(), most))
	if err != nil {
		return json.RawMessage(`"unknown: it can't be encoded"`)
	}
	return text
}

// Cut is a text of at most so many bytes and a mark, if it had more; never half of a character.
func Cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + cutMark
}

// safe is a message without what may be secret in it: of a URL that a policy names, user name,
// password and query. Those that were stored before they were refused may have them.
func safe(m proto.Message) proto.Message {
	ns, ok := m.(*pushmeshv1.Namespace)
	raw := ns.GetPolicy().GetClaims().GetPrepare().GetUrl()
	if !ok || raw == "" {
		return m
	}
	shown := "…"
	if u, err := url.Parse(raw); err == nil {
		had := u.User != nil || u.RawQuery != "" || u.Fragment != ""
		u.User, u.RawQuery, u.Fragment = nil, "", ""
		if shown = u.String(); had {
			shown += cutMark
		}
	}
	ns = proto.CloneOf(ns)
	ns.GetPolicy().GetClaims().GetPrepare().Url = shown
	return ns
}
