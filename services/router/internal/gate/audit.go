package gate

import (
	"cmp"
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/decisions"
	"github.com/pushmesh/pushmesh/internal/identity/backends"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/audit"
)

// open is what stands for a proof where nobody has to show one.
const open = "none (--open)"

// begin refuses a request that was received, or lets its handler begin.
func (c *call) begin(ctx context.Context, m any) error {
	if c.caller != nil {
		if err := c.need.check(c.caller.Who(), m); err != nil {
			return c.refuse(ctx, err)
		}
	}
	c.decide(ctx, m, nil)
	if c.need.about != nil {
		c.record = &audit.Record{Time: time.Now().UTC(), Who: c.who(ctx), Proof: cmp.Or(c.proof, open), Address: from(ctx), Call: c.name, About: c.need.about(m)}
	}
	return nil
}

// audited runs a handler, and tells what became of the change that it has begun, if it has: before
// the caller hears of it, and also where the handler panics. The context that it returns is the
// handler's.
func (c *call) audited(ctx context.Context, handle func(context.Context) error) (_ context.Context, err error) {
	if c.need.about == nil {
		return ctx, handle(ctx)
	}
	ctx, change := audit.With(ctx)
	err = code.New(wirev1.Code_CODE_INTERNAL, "the handler has panicked")
	defer func() {
		if c.record == nil {
			return
		}
		c.record.Before, c.record.After = change.States()
		c.record.End(err)
		if why := c.ended.Load(); why != nil {
			c.record.Message = strings.TrimPrefix(c.record.Message+"; ", "; ") + "the caller was told " + code.From(*why).Error()
		}
		c.gate.cfg.Audit.Tell(c.record)
	}()
	err = handle(ctx)
	return ctx, err
}

// who calls, as far as it is known.
func (c *call) who(ctx context.Context) string {
	switch {
	case c.caller != nil:
		return c.caller.Who().Producer()
	case c.gate.cfg.Backends == nil && c.gate.cfg.Caller != nil:
		return c.gate.cfg.Caller(ctx)
	}
	return ""
}

// decide has a decision logged, if it is of those that are. m is what a call that is let in asks
// for.
func (c *call) decide(ctx context.Context, m any, refusal error) {
	now, log := time.Now(), c.gate.cfg.Decisions
	if c.caller == nil && refusal == nil || !log.Chosen() || !log.Room(now) {
		return
	}
	one := &decisions.Decision{Who: c.who(ctx), From: from(ctx), What: c.name, Refusal: refusal}
	if one.Rule = decisions.RuleOf(refusal); refusal == nil {
		one.Rule = c.need.rule(c.caller.Who(), m)
	}
	log.Write(now, one)
}

// from is the address that a call came from.
func from(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return ""
}

// shown is a proof, for the audit. It has no secret.
func shown(p *backends.Proof) string {
	switch {
	case p.KeyID != "":
		return "key " + p.KeyID
	case p.Token.Issuer != "":
		return "token " + p.Token.Issuer + "/" + p.Token.Sub
	}
	return "certificate " + strings.Join(p.Certificate, " ")
}
