package shardlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/run"
)

// lookUp asks the database for those dedupe keys of a group that memory can't decide.
func (l *lane) lookUp(ctx context.Context, group []*entry) error {
	now := uint64(l.now().UnixMicro())
	hashes := unknownKeys(l.state, group, now, l.policies())
	if len(hashes) == 0 {
		return nil
	}
	if l.writer == nil {
		return errAway
	}
	found, err := l.writer.Keys(ctx, hashes, now)
	if err != nil {
		return l.asked(err)
	}
	for _, k := range found {
		l.state.keys.put(k, now)
	}
	return nil
}

var errAway = errors.New("the database is away")

// asked takes in how a question on the writer's connection failed.
func (l *lane) asked(err error) error {
	if errors.Is(err, backend.ErrLost) {
		l.dropWriter(err)
	}
	return err
}

func unknownKeys(s *state, group []*entry, now uint64, policies *policy.Table) (hashes []backend.KeyHash) {
	for _, e := range group {
		if !e.keyed() {
			continue
		}
		if _, known := s.keys.get(e.key, now); !known && s.keys.missing(e.keySpan(policies, now), now) {
			hashes = append(hashes, e.key)
		}
	}
	return hashes
}

// How far back the log is searched for what an ordered producer published.
const (
	searchSeqs  = 1024
	searchSteps = 8
)

// findFirsts completes the results of duplicates by number: the record that the number got is in
// the log, not far below the producer's last. One that isn't found (no longer retained, or a
// duplicate by its key) keeps seq 0: published, where is no longer known.
func (l *lane) findFirsts(ctx context.Context, p *plan, group []*entry) error {
	searches := map[producerKey]map[uint64][]*meshv1.AppendResult{}
	for _, i := range p.asks {
		item := group[i].item
		key := producerKey{topic: item.GetTopic()}
		copy(key.id[:], item.GetProducerId())
		if searches[key] == nil {
			searches[key] = map[uint64][]*meshv1.AppendResult{}
		}
		searches[key][item.GetProducerSeq()] = append(searches[key][item.GetProducerSeq()], p.results[i])
	}
	for key, wanted := range searches {
		if l.writer == nil {
			return errAway
		}
		if err := search(ctx, l.writer, key, l.state.positions.by[key], wanted); err != nil {
			return l.asked(err)
		}
	}
	return nil
}

func search(ctx context.Context, log backend.Finder, key producerKey, from *position, wanted map[uint64][]*meshv1.AppendResult) error {
	to := from.seq
	for step := 0; step < searchSteps && to > 0 && len(wanted) > 0; step++ {
		low := max(to, searchSeqs) - searchSeqs + 1
		var bad error
		err := log.ReadRuns(ctx, key.topic, from.epoch, low, to, func(r backend.Run) bool {
			bad = run.Each(r.Packed, func(i int, rec *run.Record) bool {
				if rec.Producer != key.id {
					return true
				}
				for _, result := range wanted[rec.ProducerSeq] {
					result.Seq, result.PublishedAt = r.First+uint64(i), rec.PublishedAt
					result.MessageId = append([]byte(nil), rec.ID[:]...)
				}
				delete(wanted, rec.ProducerSeq)
				return true
			})
			return bad == nil
		})
		if err != nil {
			return err
		}
		if bad != nil {
			return fmt.Errorf("log of a topic: %w", bad)
		}
		to = low - 1
	}
	return nil
}
