package shardlog

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/shardlog/heads"
)

const (
	// checkpointEvery and checkpointAfter messages bound what a takeover has to read again.
	checkpointEvery = 10 * time.Second
	checkpointAfter = 100_000
	// checkpointPart is how many states are stored between two commits: an append waits for that at
	// most.
	checkpointPart = 500
)

// checkpointer stores heads and positions piece by piece. The shards' commit numbers, as they were
// when it began, go last: what was appended since is read again at a takeover, which does no harm.
type checkpointer struct {
	messages int // since the last began
	begunAt  time.Time
	rest     *backend.Checkpoint // what is still to be stored
}

// unprovenMost bounds the states of unproven.
const unprovenMost = 2 * checkpointAfter

// unproven is what checkpoints have stored since the last commit: that this is there says nothing
// of them, should the server have been set back.
type unproven struct {
	parts  []*backend.Checkpoint // none where there are too many
	states int
	forgot bool // topics were forgotten, which can't be stored again
}

func (u *unproven) add(part *backend.Checkpoint) {
	u.parts = append(u.parts, part)
	if u.states += len(part.Topics) + len(part.Producers) + len(part.Shards); u.tooMany() {
		u.parts = nil
	}
}

func (u *unproven) tooMany() bool { return u.states > unprovenMost || u.forgot }

func (c *checkpointer) noticed(messages int) { c.messages += messages }

// due says that it is time, or that nobody knows: the clock went back.
func (c *checkpointer) due(now time.Time) bool {
	return c.messages >= checkpointAfter || now.Sub(c.begunAt) >= checkpointEvery || now.Before(c.begunAt)
}

// checkpoint does the next piece, if it is time.
func (l *lane) checkpoint() {
	c := &l.checkpoints
	if l.writer == nil {
		return
	}
	if c.rest == nil {
		if now := l.now(); !c.due(now) {
			return
		}
		l.beginCheckpoint()
	}
	l.storePart()
}

// checkpointAll does one from beginning to end; what fails is read again at the next takeover.
func (l *lane) checkpointAll() {
	l.beginCheckpoint()
	for l.checkpoints.rest != nil { // a writer that is lost has none
		l.storePart()
	}
}

func (l *lane) beginCheckpoint() {
	c, now := &l.checkpoints, l.now()
	l.forget(now, 0)
	rest := l.state.changed()
	if c.rest != nil { // one was under way: its states are still to be stored
		rest.Shards = append(c.rest.Shards, rest.Shards...)
		rest.Topics = append(c.rest.Topics, rest.Topics...)
		rest.Producers = append(c.rest.Producers, rest.Producers...)
	}
	c.rest, c.messages, c.begunAt = rest, 0, now
}

func (l *lane) storePart() {
	c := &l.checkpoints
	part := &backend.Checkpoint{}
	if n := min(len(c.rest.Topics), checkpointPart); n > 0 {
		part.Topics, c.rest.Topics = c.rest.Topics[:n], c.rest.Topics[n:]
	}
	if n := min(len(c.rest.Producers), checkpointPart-len(part.Topics)); n > 0 {
		part.Producers, c.rest.Producers = c.rest.Producers[:n], c.rest.Producers[n:]
	}
	last := len(c.rest.Topics)+len(c.rest.Producers) == 0
	if last {
		part.Shards = c.rest.Shards
		c.rest = nil
	}
	// a stop does not cut it off
	ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
	defer cancel()
	err := l.writer.Checkpoint(ctx, part)
	switch {
	case err == nil:
		l.unproven.add(part)
	case errors.Is(err, backend.ErrLost) || errors.Is(err, backend.ErrUnknown):
		l.state.markUnstored(part)
		l.dropWriter(err)
	default:
		l.log.Warn("a checkpoint failed", "error", err)
		l.state.markUnstored(part)
		if c.rest != nil {
			l.state.markUnstored(c.rest)
			c.rest = nil
		}
	}
}

// changed is a copy of what changed since the last call, of owned shards.
func (s *state) changed() *backend.Checkpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &backend.Checkpoint{}
	for n, sh := range s.shards {
		if sh.dirty {
			sh.dirty = false
			c.Shards = append(c.Shards, backend.Shard{Shard: n, Epoch: sh.epoch, Born: sh.born, Commit: sh.commit, Forgot: sh.forgot})
		}
		sh.topics.TakeChanged(func(name string, t *heads.Topic) {
			c.Topics = append(c.Topics, backend.Topic{Shard: n, Topic: strings.Clone(name), Epoch: sh.topics.Epoch(t), Head: t.Head, Oldest: t.Oldest})
		})
	}
	for p, left := s.positions.newest, s.positions.dirty; left > 0; p = p.older {
		// those that changed were used last, mostly
		if !p.dirty {
			continue
		}
		if left--; s.shards[int(p.shard)] != nil {
			p.dirty = false
			s.positions.dirty--
			c.Producers = append(c.Producers, backend.Producer{
				Shard: int(p.shard), Topic: p.key.topic, ID: p.key.id, ProducerSeq: p.producerSeq, Epoch: p.epoch, Seq: p.seq, At: p.at,
			})
		}
	}
	return c
}

// forget lets go of positions of producers, and counts them.
func (l *lane) forget(now time.Time, room int) {
	unused, crowded := l.state.forget(uint64(now.UnixMicro()), room, forgetMost)
	l.metrics.forgot(unused, crowded)
	l.metrics.positioned(l.name, len(l.state.positions.by))
}
