package claimclient

import (
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// applyResult takes the owner's place from an operation's result, and notifies the connections that
// did not ask. It returns what the one that asked is told: that the outcome is unknown, where r is
// late.
func (c *Client) applyResult(o *op, from *link, r *meshv1.ClaimResult, sent bool) *meshv1.ClaimResult {
	b := &c.shards[o.shard]
	b.mu.Lock()
	defer b.mu.Unlock()
	kind := o.m.GetKind()
	if kind == meshv1.ClaimOp_KIND_UNWATCH {
		return r
	}
	e := b.entries[key{o.m.GetResource(), o.m.GetOwner()}]
	if e == nil {
		return r
	}
	if o.tie != nil && o.check == nil && r.GetCode() == wirev1.Code_CODE_OK && c.late(e, from, o.shard) {
		r = failure(wirev1.Code_CODE_UNAVAILABLE, "the store that answered has lost the resource's shard to another one since")
	}
	if o.tie != nil {
		o.tie.pending--
		if o.check == nil {
			c.answered(e, o, r, sent)
		}
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
	return r
}

// answered notes that a connection gets an answer, and tells it what it missed where that says
// nothing of its place.
func (c *Client) answered(e *entry, o *op, r *meshv1.ClaimResult, sent bool) {
	t := o.tie
	if o.first {
		t.owed = sent && r.GetCode() == wirev1.Code_CODE_UNAVAILABLE
	} else if r.GetCode() != wirev1.Code_CODE_OK {
		return
	}
	if t.missed != nil && !t.ended && r.GetCode() != wirev1.Code_CODE_OK {
		c.cfg.Notify(t.conn, e.owner, t.missed)
		t.owed = false // it is told the place here; another one that is found is news
	}
	t.asking, t.missed = false, nil
}

// untied forgets a tie once the store knows that its connection is gone, or never knew of it.
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

// mayHelp reports whether the same operation may succeed later.
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
		c.markUnsure(e)
		return
	case wirev1.Code_CODE_UNAVAILABLE:
		if sent {
			c.markUnsure(e)
		}
		return
	default:
		return // nothing was done
	}
	if c.late(e, from, o.shard) {
		c.markUnsure(e)
		return
	}
	var notified bool
	switch st.GetState() {
	case wirev1.ClaimState_STATE_GRANTED, wirev1.ClaimState_STATE_QUEUED:
		notified = c.placed(e, st, asker)
	case wirev1.ClaimState_STATE_RELEASED, wirev1.ClaimState_STATE_LOST:
		notified = c.ended(e, st, asker)
	default:
		if o.m.GetKind() == meshv1.ClaimOp_KIND_RELEASE {
			// the answer says nothing about the place of another token
			c.markUnsure(e)
			return
		}
		notified = c.without(e, st, asker)
	}
	switch {
	case !c.owns(from, o.shard): // it pushes nothing any more
		e.link = from
		c.markUnsure(e)
	case o.m.GetConn() != 0 || e.owner == "":
		e.link = from
	case e.link != from: // that store does not know the connections yet
		c.markDirty(e)
	}
	if notified && o.check != nil {
		c.metrics.found()
	}
}

// late reports whether the shard's new owner has spoken of an entry since a store answered.
func (c *Client) late(e *entry, from *link, shard int) bool {
	return from != nil && e.link != nil && e.link != from && !c.owns(from, shard)
}

// owns reports whether a link's store has a shard, as far as is known.
func (c *Client) owns(l *link, shard int) bool {
	addr := c.cfg.Stores.OwnerOf(shard)
	return addr == "" || addr == l.addr
}

// markUnsure has the keeper ask for the current state.
func (c *Client) markUnsure(e *entry) {
	e.unsure = true
	c.markDirty(e)
}

// placed takes a place of the owner, and reports whether it was a change.
func (c *Client) placed(e *entry, st *wirev1.ClaimState, asker uint64) bool {
	news := differs(e.place, st)
	e.place, e.public, e.unsure = st, nil, false
	if news {
		e.since = time.Now()
		c.notify(e, st, asker, false)
	}
	for _, t := range e.ties {
		if t.owed && !news && !t.ended && t.conn != asker {
			c.cfg.Notify(t.conn, e.owner, st)
		}
		t.owed = false
	}
	return news
}

// ended takes the end of the owner's place; st says how it ended.
func (c *Client) ended(e *entry, st *wirev1.ClaimState, asker uint64) bool {
	had := e.place != nil
	e.place, e.unsure = nil, false
	if had {
		c.notify(e, st, asker, false)
	}
	if e.watching > 0 {
		c.markDirty(e) // from now on they are notified of the resource
	}
	return had
}

// without takes that the owner has no place; st is the resource's state.
func (c *Client) without(e *entry, st *wirev1.ClaimState, asker uint64) bool {
	lost := e.place != nil
	if lost {
		c.notify(e, &wirev1.ClaimState{
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
		c.notify(e, st, asker, true)
	}
	return lost || news
}

// notify notifies the connections of an entry, but not the one that asked and has its answer, nor
// those whose first answer is to come.
func (c *Client) notify(e *entry, st *wirev1.ClaimState, asker uint64, watchers bool) {
	for _, t := range e.ties {
		switch {
		case t.ended || t.conn == asker || watchers && !t.watch:
		case t.asking && watchers: // where it can't watch it is told nothing
		case t.asking:
			t.missed = st
		default:
			c.cfg.Notify(t.conn, e.owner, st)
		}
	}
}

// differs reports whether a connection that was sent a must be sent b.
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

// applyPush takes a change that a store sends by itself.
func (c *Client) applyPush(from *link, p *meshv1.ClaimPush) {
	if p.GetOwner() == "" {
		c.applyPublicPush(from, p.GetState())
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
			// the store has a connection that is gone
			c.mention(shard, &meshv1.ClaimOp{Kind: meshv1.ClaimOp_KIND_UNTIE, Resource: st.GetResource(), Owner: p.GetOwner(), Conn: p.GetConn()})
		}
	}
	if e == nil || !c.fromCurrentLink(e, from) {
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

// fromCurrentLink reports whether a link is the one that the entry's ties were sent over last. If
// it is not, the shard has a new owner, which the keeper asks.
func (c *Client) fromCurrentLink(e *entry, from *link) bool {
	if e.link == from {
		return true
	}
	c.markDirty(e)
	return false
}

// applyPublicPush notifies the connections that watch a resource and have no place there.
func (c *Client) applyPublicPush(from *link, st *wirev1.ClaimState) {
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
		case e.link == nil || e.place != nil || !c.fromCurrentLink(e, from):
			// link is nil until the first answer
		case e.owner != "" && e.owner == st.GetHolder():
			c.markDirty(e) // it has a place now that no connection asked for
		case differs(e.public, st):
			e.public = st
			c.notify(e, st, 0, true)
		}
	}
}
