package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/test/load/firehose"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	growthTopics = 4096
	growthReads  = 2000
	// What a stored message takes of the disk, and what the server's own log and the rest take.
	growthBytes = 460
	growthRest  = 6 << 30
)

// roomFor refuses to begin what the disk of a folder has no room for.
func roomFor(dir string, messages int64) error {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("free space of %s: %w", dir, err)
	}
	const gb = 1e9
	if need, free := float64(messages)*growthBytes+growthRest, float64(fs.Bavail)*float64(fs.Bsize); free < need {
		return fmt.Errorf("%d messages need %.0f GB of disk, %s has %.0f GB free: set TMPDIR to a folder with more, or store fewer with -stored", messages, need/gb, dir, free/gb)
	}
	return nil
}

// growth publishes until so many messages are stored, and looks each time how fast that was at last
// and how long a read takes.
func (b *bench) growth(ctx context.Context) (err error) {
	defer try.Catch(&err)
	m := try.Get(b.mesh(ctx, 0))
	defer func() { err = errors.Join(err, m.end()) }()
	conn := try.Get(suite.Dial(m.Store.Addr))
	defer func() { _ = conn.Close() }()
	all := names("room", growthTopics)
	const rated = 200 // frames, of which the rate is taken
	have := 0         // frames, and so messages of each topic
	for _, want := range b.stored {
		h := try.Get(firehose.Dial(ctx, firehose.Config{Addr: m.Router.Addr, Topics: all, Size: payload, Window: 4}))
		if more := int(want/growthTopics) - rated - have; more > 0 {
			try.Do(b.grow(ctx, m.Router.Addr, all, more))
			have += more
		}
		began := time.Now()
		try.Do(h.RunFrames(ctx, rated))
		have += rated
		rate := float64(h.Answered()) / time.Since(began).Seconds()
		store := meshv1.NewStoreServiceClient(conn)
		resp := try.Get(store.Heads(ctx, &meshv1.HeadsRequest{Topics: all}))
		looked := try.Get(b.lookedAt(ctx, m.url))
		took := try.Get(reads(ctx, store, resp.GetHeads()))
		rows := try.Get(looked(growthReads))
		var size int64
		try.Do(b.DB.Query(ctx, m.url, "SELECT pg_database_size(current_database())", &size))
		b.Add(table.Figure(fmt.Sprintf("append rate with %d messages stored, %d topics", want, growthTopics), rate, "messages/s", fmt.Sprintf("%d stored; %.0f bytes of disk for each", stored(resp.GetHeads()), float64(size)/float64(stored(resp.GetHeads())))),
			table.Figure(fmt.Sprintf("read of one message of %d stored, p50", want), table.Quantile(took, .5), "ms",
				fmt.Sprintf("p99 %s; %.1f rows of the log looked at for each", ms(took, .99), rows)))
	}
	return nil
}

// grow publishes so many frames, a message of each topic in each.
func (b *bench) grow(ctx context.Context, router string, all []string, frames int) (err error) {
	defer try.Catch(&err)
	h := try.Get(firehose.Dial(ctx, firehose.Config{Addr: router, Topics: all, Size: payload, Window: 4}))
	return h.RunFrames(ctx, frames)
}

// stored is how many messages there are: those refused under load are not.
func stored(heads []*meshv1.Head) (n uint64) {
	for _, h := range heads {
		n += h.GetHead()
	}
	return n
}

// reads of single messages, anywhere in the log.
func reads(ctx context.Context, store meshv1.StoreServiceClient, heads []*meshv1.Head) (took []time.Duration, err error) {
	defer try.Catch(&err)
	for range growthReads {
		h := heads[rand.IntN(len(heads))]
		if h.GetHead() == 0 {
			return nil, fmt.Errorf("nothing of %s is stored", h.GetTopic())
		}
		seq := 1 + rand.Uint64N(h.GetHead())
		began := time.Now()
		stream := try.Get(store.ReadLog(ctx, &meshv1.ReadLogRequest{Topic: h.GetTopic(), FromSeq: seq, ToSeq: seq}))
		resp := try.Get(stream.Recv())
		if len(resp.GetRecords()) != 1 {
			return nil, fmt.Errorf("%d records at seq %d of %d", len(resp.GetRecords()), seq, h.GetHead())
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took, nil
}

// lookedAt begins to count the rows of the log that are found by its indexes. After so many reads
// perRead says how many there were for each: a server's process tells what it has counted when it
// has been idle for some seconds.
func (b *bench) lookedAt(ctx context.Context, url string) (perRead func(reads int) (float64, error), err error) {
	counts := func() (scans, rows, tables int64, err error) {
		err = b.DB.Query(ctx, url, `SELECT sum(idx_scan)::bigint, sum(idx_tup_fetch)::bigint, count(*) FROM pg_stat_user_tables
			WHERE schemaname = 'pushmesh' AND relname ~ '^log_[a-z]+_[0-9]+$'`, &scans, &rows, &tables)
		return scans, rows, tables, err
	}
	scans, rows, _, err := counts()
	if err != nil {
		return nil, err
	}
	return func(reads int) (float64, error) {
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for tries := 0; ; tries++ {
			s, r, tables, err := counts() // a read looks into each table once
			if err != nil {
				return 0, err
			}
			if made := (s - scans) / max(tables, 1); made >= int64(reads)*9/10 || tries > 60 {
				return float64(r-rows) / float64(max(made, 1)), nil
			}
			select {
			case <-ctx.Done():
				return 0, ctx.Err()
			case <-tick.C:
			}
		}
	}, nil
}
