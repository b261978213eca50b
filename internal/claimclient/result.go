package claimclient

import (
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// settle takes what an operation's end says about its owner's place, and tells the connections that
// did not ask.
func (c *Client) settle(o *op, from *link, r *meshv1.ClaimResult, sent bool) {
	kind := o.m.GetKind()
	if kind == meshv1.ClaimOp_KIND_UNWATCH {
		return
	}
	b := &c.shards[o.shard]
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[key{o.m.GetResource(), o.m.GetOwner()}]
	if e == nil {
		return
	}
	if o.tie != nil {
		o.tie.pending--
		if o.watches && r.GetCode() != wirev1.Code_CODE_OK {
			c.unwatch(b, e, o.tie)
		}
	}
	switch {
	case kind == meshv1.ClaimOp_KIND_UNTIE:
		c.untied(e, o.tie, r)
	case o.check == nil || r.GetCode() == wirev1.Code_CODE_OK:
		c.learn(e, o, from, r, sent)
	}
	if kind == meshv1.ClaimOp_KIND_LEAVE && r.GetCode() == wirev1.Code_CODE_OK && o.tie != nil {
		c.unwatch(b, e, o.tie)
	}
	if o.check != nil {
		c.checked(e, r)
	}
	c.tidy(b, e)
}

// untied: the store knows that a connection is gone, or has nothing to do with it.
func (c *Client) untied(e *entry, t *tie, r *meshv1.ClaimResult) {
	if mayHelp(r) {
		return
	}
	for i, other := range e.ties {
		if other == t {
			e.ties = append(e.ties[:i], e.ties[i+1:]...)
			c.forget(e, t)
			return
		}
	}
}

// mayHelp reports whether asking the same once more can help.
func mayHelp(r *meshv1.ClaimResult) bool {
	return r.GetCode() == wirev1.Code_CODE_UNAVAILABLE || r.GetCode() == wirev1.Code_CODE_OVERLOADED || r.GetCode() == wirev1.Code_CODE_CONFLICT
}

func (c *Client) learn(e *entry, o *op, from *link, r *meshv1.ClaimResult, sent bool) {
	asker := o.m.GetConn()
	if o.check != nil {
		asker = 0
	}
	st := r.GetState()
	switch r.GetCode() {
	case wirev1.Code_CODE_OK:
	case wirev1.Code_CODE_NOT_HELD:
		c.doubt(e)
		return
	case wirev1.Code_CODE_UNAVAILABLE:
		if sent {
			c.doubt(e)
		}
		return
	default:
		return // nothing was done
	}
	var told bool
	switch st.GetState() {
	case wirev1.ClaimState_STATE_GRANTED, wirev1.ClaimState_STATE_QUEUED:
		told = c.placed(e, st, asker)
	case wirev1.ClaimState_STATE_RELEASED, wirev1.ClaimState_STATE_LOST:
		told = c.ended(e, st, asker)
	default:
		if o.m.GetKind() == meshv1.ClaimOp_KIND_RELEASE {
			// which says nothing of another token's place
			c.doubt(e)
			return
		}
		told = c.without(e, st, asker)
	}
	switch {
	case o.m.GetConn() != 0 || e.owner == "":
		e.link = from
	case e.link != from: // it does not know yet who is told
		c.markDirty(e)
	}
	if told && o.check != nil {
		c.metrics.found()
	}
}

// doubt has the keeper find out what is so.
func (c *Client) doubt(e *entry) {
	e.unsure = true
	c.markDirty(e)
}

// placed: the owner has a place. It reports whether anybody had to be told.
func (c *Client) placed(e *entry, st *wirev1.ClaimState, asker uint64) bool {
	news := differs(e.place, st)
	e.place, e.public, e.unsure = st, nil, false
	if news {
		e.since = time.Now()
		c.tell(e, st, asker, false)
	}
	return news
}

// ended: the owner's place was given up or lost, st says how.
func (c *Client) ended(e *entry, st *wirev1.ClaimState, asker uint64) bool {
	had := e.place != nil
	e.place, e.unsure = nil, false
	if had {
		c.tell(e, st, asker, false)
	}
	if e.watching > 0 {
		c.markDirty(e) // they are told of the resource from now on
	}
	return had
}

// without: the owner has no place, st is the resource's state.
func (c *Client) without(e *entry, st *wirev1.ClaimState, asker uint64) bool {
	lost := e.place != nil
	if lost {
		c.tell(e, &wirev1.ClaimState{
			Resource: e.resource, State: wirev1.ClaimState_STATE_LOST, Token: e.place.GetToken(), Code: wirev1.Code_CODE_NOT_HELD,
		}, 0, false)
	}
	e.place, e.unsure = nil, false
	if e.watching == 0 {
		return lost
	}
	news := differs(e.public, st)
	e.public = st
	if news {
		c.tell(e, st, asker, true)
	}
	return lost || news
}

// tell tells the connections of an entry, but not the one that asked and has its answer.
func (c *Client) tell(e *entry, st *wirev1.ClaimState, asker uint64, watchers bool) {
	for _, t := range e.ties {
		if !t.ended && t.conn != asker && (t.watch || !watchers) {
			c.cfg.Tell(t.conn, e.owner, st)
		}
	}
}

// differs reports whether b has to be told to whom was told a.
func differs(a, b *wirev1.ClaimState) bool {
	switch {
	case a == nil || a.GetState() != b.GetState():
		return true
	case b.GetState() == wirev1.ClaimState_STATE_QUEUED:
		return a.GetPosition() != b.GetPosition()
	case b.GetState() == wirev1.ClaimState_STATE_GRANTED:
		return a.GetToken() != b.GetToken() || a.GetExpiresAt() != b.GetExpiresAt()
	}
	return a.GetHolder() != b.GetHolder() || a.GetHolding() != b.GetHolding() || a.GetWaiting() != b.GetWaiting()
}

// pushed takes what a store tells by itself.
func (c *Client) pushed(from *link, p *meshv1.ClaimPush) {
	if p.GetOwner() == "" {
		c.pushedPublic(from, p.GetState())
		return
	}
	st := p.GetState()
	shard := shardOf(st)
	b := &c.shards[shard]
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[key{st.GetResource(), p.GetOwner()}]
	if e == nil || e.find(p.GetConn()) == nil {
		if st.GetState() == wirev1.ClaimState_STATE_GRANTED || st.GetState() == wirev1.ClaimState_STATE_QUEUED {
			// the store believes in a connection that is gone
			c.mention(shard, &meshv1.ClaimOp{Kind: meshv1.ClaimOp_KIND_UNTIE, Resource: st.GetResource(), Owner: p.GetOwner(), Conn: p.GetConn()})
		}
	}
	if e == nil || !c.believed(e, from) {
		return
	}
	switch st.GetState() {
	case wirev1.ClaimState_STATE_GRANTED, wirev1.ClaimState_STATE_QUEUED:
		c.placed(e, st, 0)
	case wirev1.ClaimState_STATE_LOST, wirev1.ClaimState_STATE_RELEASED:
		c.ended(e, st, 0)
	}
	c.tidy(b, e)
}

// believed reports whether a link is the one that was told last who is told of the entry. Where it
// is not, the owner has changed, and is asked.
func (c *Client) believed(e *entry, from *link) bool {
	if e.link == from {
		return true
	}
	c.markDirty(e)
	return false
}

// pushedPublic tells those who watch a resource and have no place there.
func (c *Client) pushedPublic(from *link, st *wirev1.ClaimState) {
	shard := shardOf(st)
	b := &c.shards[shard]
	b.mu.Lock()
	defer b.mu.Unlock()
	entries := b.watched[st.GetResource()]
	if len(entries) == 0 {
		c.mention(shard, &meshv1.ClaimOp{Kind: meshv1.ClaimOp_KIND_UNWATCH, Resource: st.GetResource()})
		return
	}
	for e := range entries {
		switch {
		case e.link == nil || e.place != nil || !c.believed(e, from):
			// nil: its answer is still to come
		case e.owner != "" && e.owner == st.GetHolder():
			c.markDirty(e) // it has a place now, that was not asked for by a connection
		case differs(e.public, st):
			e.public = st
			c.tell(e, st, 0, true)
		}
	}
}
