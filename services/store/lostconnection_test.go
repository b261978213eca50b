package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// shardsTaken is how many shards a store has taken, loaded or known still.
func shardsTaken(t *testing.T, st *Store, state string) (n float64) {
	t.Helper()
	req, err := http.NewRequestWithContext(within(t), http.MethodGet, "http://"+st.HTTPAddr()+"/metrics", nil)
	need(t, err)
	resp, err := http.DefaultClient.Do(req)
	need(t, err)
	defer func() { _ = resp.Body.Close() }()
	var text bytes.Buffer
	_, err = text.ReadFrom(resp.Body)
	need(t, err)
	for line := range strings.Lines(text.String()) {
		if value, is := strings.CutPrefix(line, `pushmesh_store_shards_taken_total{state="`+state+`"} `); is {
			n, err = strconv.ParseFloat(strings.TrimSpace(value), 64)
			need(t, err)
			return n
		}
	}
	t.Fatalf("no shards are counted as %s", state)
	return 0
}

// Whatever costs a store its connections, a commit among them that the server does after they are
// gone: it reads nothing of its shards again, loses nothing, and gives no number twice.
func TestALostConnectionIsNoTakeover(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t)
	st := serving(t, Settings{ID: "s1", DB: server.URL(), Standalone: true, LogLevel: "error", DBPatience: 500 * time.Millisecond})
	c := dial(t, st.Addr())
	const topics = 8
	ref, sent := uint64(0), map[string]int{}
	publish := func() {
		t.Helper()
		for i := range topics {
			ref++
			name := fmt.Sprint("room/", i)
			it := item(ref, name, fmt.Sprint("m", ref))
			it.DedupeKey = fmt.Sprint(ref) // it may be sent again
			if r, _ := taken(t, c, it); r.GetDuplicate() && r.GetSeq() == 0 {
				t.Errorf("%v", r)
			}
			sent[name]++
		}
	}
	publish()
	loaded := shardsTaken(t, st, "loaded")
	for _, fault := range []struct {
		name string
		play func()
	}{
		{"its backends are terminated", func() { pgtest.Terminate(t, server.URL(), "application_name = 'pushmesh-writer'") }},
		{"the server hangs in a commit", func() {
			need(t, server.Pause())
			stream, err := c.Append(within(t))
			need(t, err)
			need(t, stream.Send(&meshv1.AppendRequest{Items: []*meshv1.AppendItem{item(1_000_000, "room/0", "in doubt")}}))
			need(t, stream.CloseSend())
			eventually(t, "the connection is given up", func() bool { return st.core.log.Load().Check() != nil && len(st.core.log.Load().Owned()) < 1024 })
			need(t, server.Resume())
			for err == nil { // whatever the answer is
				_, err = stream.Recv()
			}
			if !errors.Is(err, io.EOF) {
				t.Errorf("the answer: %v", err)
			}
		}},
		{"the server is killed", func() {
			need(t, server.Kill())
			need(t, server.Restart())
		}},
		{"the server is restarted", func() { need(t, server.Restart()) }},
	} {
		before := shardsTaken(t, st, "known")
		fault.play()
		publish()
		publish()
		eventually(t, "every shard is owned", func() bool { return len(st.core.log.Load().Owned()) == 1024 })
		if now := shardsTaken(t, st, "loaded"); now != loaded {
			t.Errorf("%s: %v shards were loaded, %v before", fault.name, now, loaded)
		}
		if now := shardsTaken(t, st, "known"); now == before {
			t.Errorf("%s: no shard was lost", fault.name)
		}
	}
	for name, want := range sent {
		records, _, _ := readAll(t, c, &meshv1.ReadLogRequest{Topic: name})
		seen, doubted := map[string]bool{}, 0
		for i, r := range records {
			body := string(r.GetBody())
			if r.GetSeq() != uint64(i+1) || seen[body] {
				t.Errorf("%s: record %d has seq %d and body %q", name, i+1, r.GetSeq(), body)
			}
			seen[body] = true
			if body == "in doubt" {
				doubted++
			}
		}
		if len(records)-doubted != want {
			t.Errorf("%s has %d messages, want %d", name, len(records)-doubted, want)
		}
	}
}
