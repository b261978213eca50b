package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// pageRuns is how many runs one query reads: it bounds memory, and how long the read transaction
// keeps the WAL from being reset.
const pageRuns = 16

// ReadRuns visits the runs of a topic that hold any of the seqs.
func (b *Backend) ReadRuns(ctx context.Context, topic string, epoch, from, to uint64, visit func(backend.Run) bool) error {
	to = min(to, math.MaxInt64)
	for from <= to {
		most := int(min(to-from, pageRuns-1)) + 1 // a run has a message at least
		page, err := b.readPage(ctx, topic, epoch, from, to, most)
		if err != nil {
			return err
		}
		for _, r := range page {
			if r.First > to || !visit(r) {
				return nil
			}
		}
		if len(page) < most {
			return nil
		}
		from = page[len(page)-1].Last() + 1
	}
	return nil
}

// readPage reads up to most runs that end at from or later. One beyond the range comes without its
// content: as a condition, first would have the index searched on to the topic's last run.
func (b *Backend) readPage(ctx context.Context, topic string, epoch, from, to uint64, most int) (page []backend.Run, err error) {
	b.slices.mu.RLock()
	defer b.slices.mu.RUnlock()
	query := union(b.slices.of(logKind, 0), func(s sliceTable) string {
		return fmt.Sprintf("SELECT shard, commit_no, topic, epoch, first, last, at, %d AS class, CASE WHEN first <= ?4 THEN packed END FROM %s WHERE topic = ?1 AND epoch = ?2 AND last >= ?3",
			s.class, s.name())
	})
	if query == "" {
		return nil, nil
	}
	return collect(ctx, b.read, func(rows *sql.Rows) (backend.Run, error) { return scanRun(rows) },
		fmt.Sprintf("%s ORDER BY last LIMIT %d", query, most), topic, int64(epoch), int64(from), int64(to))
}

// scanRun scans what else is asked for as well.
func scanRun(rows *sql.Rows, more ...any) (r backend.Run, err error) {
	var last uint64
	err = rows.Scan(append([]any{&r.Shard, &r.Commit, &r.Topic, &r.Epoch, &r.First, &last, &r.At, &r.Class, &r.Packed}, more...)...)
	r.N = int(last - r.First + 1)
	return r, err
}

func union(tables []sliceTable, query func(sliceTable) string) string {
	parts := make([]string, len(tables))
	for i, t := range tables {
		parts[i] = query(t)
	}
	return strings.Join(parts, " UNION ALL ")
}

// Oldest answers each question.
func (b *Backend) Oldest(ctx context.Context, questions []backend.OldestQuestion) ([]backend.OldestAnswer, error) {
	answers := make([]backend.OldestAnswer, len(questions))
	for i, q := range questions {
		if err := b.oldest(ctx, q, &answers[i]); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

func (b *Backend) oldest(ctx context.Context, q backend.OldestQuestion, into *backend.OldestAnswer) error {
	b.slices.mu.RLock()
	defer b.slices.mu.RUnlock()
	query := union(b.slices.of(logKind, q.NotBefore), func(s sliceTable) string {
		return fmt.Sprintf("SELECT first, last, at FROM %s WHERE topic = ?1 AND epoch = ?2 AND last >= ?4 AND at >= ?3", s.name())
	})
	if query == "" {
		return nil
	}
	var last uint64
	err := b.read.QueryRowContext(ctx, query+" ORDER BY last LIMIT 1", q.Topic, int64(q.Epoch), int64(q.NotBefore), int64(q.From)).Scan(&into.Seq, &last, &into.At)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("sqlite: oldest: %w", err)
	}
	return nil
}

// hashesPerQuery bounds one query of Keys.
const hashesPerQuery = 256

// Keys finds dedupe keys.
func (b *Backend) Keys(ctx context.Context, hashes []backend.KeyHash, now uint64) (found []backend.Key, err error) {
	for some := range slices.Chunk(hashes, hashesPerQuery) {
		keys, err := b.keys(ctx, some, now)
		if err != nil {
			return nil, err
		}
		found = append(found, keys...)
	}
	return latest(found), nil
}

// latest keeps, of each hash, the key that is remembered longest.
func latest(keys []backend.Key) []backend.Key {
	at := make(map[backend.KeyHash]int, len(keys))
	kept := keys[:0]
	for _, k := range keys {
		i, ok := at[k.Hash]
		switch {
		case !ok:
			at[k.Hash] = len(kept)
			kept = append(kept, k)
		case kept[i].Until < k.Until:
			kept[i] = k
		}
	}
	return kept
}

func (b *Backend) keys(ctx context.Context, hashes []backend.KeyHash, now uint64) ([]backend.Key, error) {
	b.slices.mu.RLock()
	defer b.slices.mu.RUnlock()
	args := []any{int64(now)}
	for i := range hashes {
		args = append(args, hashes[i][:])
	}
	in := "(?2" + numbered(3, len(hashes)-1) + ")"
	query := union(b.slices.of(keyKind, now), func(s sliceTable) string {
		return fmt.Sprintf("SELECT shard, hash, epoch, seq, message_id, published_at, until, %d FROM %s WHERE hash IN %s AND until > ?1", s.class, s.name(), in)
	})
	if query == "" {
		return nil, nil
	}
	return collect(ctx, b.read, func(rows *sql.Rows) (k backend.Key, err error) {
		var hash, id sql.RawBytes
		err = rows.Scan(&k.Shard, &hash, &k.Epoch, &k.Seq, &id, &k.PublishedAt, &k.Until, &k.Class)
		copy(k.Hash[:], hash)
		copy(k.MessageID[:], id)
		return k, err
	}, query, args...)
}

// numbered is ",?from,?from+1…" with n parameters.
func numbered(from, n int) string {
	var s strings.Builder
	for i := range n {
		fmt.Fprintf(&s, ",?%d", from+i)
	}
	return s.String()
}
