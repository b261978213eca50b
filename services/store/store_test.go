package store

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func need(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// standalone starts a store of its own on a database file, without NATS.
func standalone(t testing.TB, path string) (*Store, meshv1.StoreServiceClient) {
	t.Helper()
	return alone(t, "sqlite:"+path)
}

func alone(t testing.TB, db string) (*Store, meshv1.StoreServiceClient) {
	t.Helper()
	st := serving(t, Settings{ID: "s1", DB: db, Standalone: true, LogLevel: "warn"})
	return st, dial(t, st.Addr())
}

func item(ref uint64, topic, body string) *meshv1.AppendItem {
	return &meshv1.AppendItem{Ref: ref, Topic: topic, Body: []byte(body), MessageId: []byte(fmt.Sprintf("%016d", ref)), PublishedAt: 1}
}

// appendAll sends items over one stream and returns their results by ref.
func appendAll(t testing.TB, c meshv1.StoreServiceClient, items ...*meshv1.AppendItem) map[uint64]*meshv1.AppendResult {
	t.Helper()
	stream, err := c.Append(within(t))
	need(t, err)
	need(t, stream.Send(&meshv1.AppendRequest{Items: items}))
	need(t, stream.CloseSend())
	by := map[uint64]*meshv1.AppendResult{}
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return by
		}
		need(t, err)
		for _, r := range resp.GetResults() {
			by[r.GetRef()] = r
		}
	}
}

func readAll(t testing.TB, c meshv1.StoreServiceClient, req *meshv1.ReadLogRequest) (all []*meshv1.LogRecord, first *meshv1.ReadLogResponse, responses int) {
	t.Helper()
	ctx := within(t)
	stream, err := c.ReadLog(ctx, req)
	need(t, err)
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all, first, responses
		}
		if later(code.Of(err)) && ctx.Err() == nil { // from the beginning
			all, first, responses = nil, nil, 0
			stream, err = c.ReadLog(ctx, req)
			need(t, err)
			continue
		}
		need(t, err)
		if first == nil {
			first = resp
		}
		responses++
		all = append(all, resp.GetRecords()...)
	}
}

func TestAppendAndRead(t *testing.T) {
	_, c := standalone(t, filepath.Join(t.TempDir(), "store.db"))
	owners, err := c.Owners(within(t), &meshv1.OwnersRequest{})
	need(t, err)
	if rs := owners.GetRanges(); len(rs) != 1 || rs[0].GetFirst() != 0 || rs[0].GetLast() != topic.Shards-1 || rs[0].GetStoreId() != "s1" {
		t.Fatalf("owners: %v", owners)
	}
	var items []*meshv1.AppendItem
	for ref := uint64(1); ref <= 40; ref++ {
		items = append(items, item(ref, "room/1", strings.Repeat("x", 100_000)))
	}
	items = append(items, item(41, "room//1", "x"), item(42, "room/2", "y"))
	items[41].MessageId = []byte("short")
	results := appendAll(t, c, items...)
	for ref := uint64(1); ref <= 40; ref++ {
		if r := results[ref]; r.GetCode() != wirev1.Code_CODE_OK || r.GetSeq() != ref || string(r.GetMessageId()) != fmt.Sprintf("%016d", ref) {
			t.Fatalf("%d: %v", ref, r)
		}
	}
	if results[41].GetCode() != wirev1.Code_CODE_BAD_TOPIC || results[42].GetCode() != wirev1.Code_CODE_INVALID_ARGUMENT {
		t.Errorf("nonsense: %v %v", results[41], results[42])
	}
	all, first, responses := readAll(t, c, &meshv1.ReadLogRequest{Topic: "room/1"})
	if len(all) != 40 || all[39].GetSeq() != 40 || len(all[0].GetBody()) != 100_000 || first.GetHead() != 40 || first.GetOldest() != 1 {
		t.Errorf("%d records, first response head %d oldest %d", len(all), first.GetHead(), first.GetOldest())
	}
	if responses < 4 {
		t.Errorf("4 MB came in %d responses, want chunks of at most 1 MiB", responses)
	}
	if all, _, _ := readAll(t, c, &meshv1.ReadLogRequest{Topic: "room/1", FromSeq: 5, MaxBytes: 250_000}); len(all) != 2 || all[0].GetSeq() != 5 {
		t.Errorf("at most 250,000 bytes: %d records", len(all))
	}
	if all, _, _ := readAll(t, c, &meshv1.ReadLogRequest{Topic: "room/1", FromSeq: 5, MaxBytes: 1}); len(all) != 1 {
		t.Errorf("at least one record: %d", len(all))
	}
	if all, first, n := readAll(t, c, &meshv1.ReadLogRequest{Topic: "room/3"}); len(all) != 0 || n != 1 || first.GetEpoch() == 0 {
		t.Errorf("a topic nobody published to: %v", first)
	}
	eventually(t, "an epoch that is gone is refused", func() bool {
		stream, err := c.ReadLog(within(t), &meshv1.ReadLogRequest{Topic: "room/1", Epoch: 7})
		need(t, err)
		_, err = stream.Recv()
		if got := code.Of(err); got != wirev1.Code_CODE_EPOCH_CHANGED && !later(got) {
			t.Fatalf("an epoch that is gone: %v", err)
		}
		return !later(code.Of(err))
	})
	heads, err := c.Heads(within(t), &meshv1.HeadsRequest{Topics: []string{"room/1"}, Filters: []string{"room/#"}})
	need(t, err)
	if len(heads.GetHeads()) != 1 || heads.GetHeads()[0].GetHead() != 40 {
		t.Errorf("heads: %v", heads)
	}
}

func TestPlannedStopKeepsEverything(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	st := started(t, Settings{ID: "s1", DB: "sqlite:" + path, Standalone: true, LogLevel: "warn"})
	stream, err := dial(t, st.Addr()).Append(within(t))
	need(t, err)
	sending, taken, done := make(chan struct{}), make(chan struct{}), make(chan map[uint64]wirev1.Code)
	go func() {
		codes := map[uint64]wirev1.Code{}
		for {
			resp, err := stream.Recv()
			if err != nil {
				done <- codes
				return
			}
			if len(codes) == 0 {
				close(taken)
			}
			for _, r := range resp.GetResults() {
				codes[r.GetRef()] = r.GetCode()
			}
		}
	}()
	go func() {
		for ref := uint64(1); ; ref++ {
			if err := stream.Send(&meshv1.AppendRequest{Items: []*meshv1.AppendItem{item(ref, "room/1", fmt.Sprint(ref))}}); err != nil {
				return
			}
			if ref == 500 {
				close(sending)
			}
		}
	}()
	<-sending
	<-taken
	need(t, st.Stop(within(t)))
	acknowledged := 0
	for ref, c := range <-done {
		switch c {
		case wirev1.Code_CODE_OK:
			acknowledged++
		case wirev1.Code_CODE_DRAINING, wirev1.Code_CODE_UNAVAILABLE, wirev1.Code_CODE_OVERLOADED:
		default:
			t.Errorf("%d: %s", ref, c)
		}
	}
	_, c := standalone(t, path)
	all, _, _ := readAll(t, c, &meshv1.ReadLogRequest{Topic: "room/1"})
	if len(all) < acknowledged || acknowledged == 0 {
		t.Errorf("%d acknowledged, %d in the log", acknowledged, len(all))
	}
}

func TestSessionsAndDeadLetters(t *testing.T) {
	_, c := standalone(t, filepath.Join(t.TempDir(), "store.db"))
	if _, err := c.AttachSession(within(t), &meshv1.AttachSessionRequest{User: "u", EdgeId: "e1"}); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
		t.Errorf("a session without a name: %v", err)
	}
	a, err := c.AttachSession(within(t), &meshv1.AttachSessionRequest{User: "u", Name: "s", EdgeId: "e1", ConnectionId: 1 << 63})
	need(t, err)
	letter := &meshv1.DeadLetter{Topic: "room/1", Epoch: 1, Seq: 9, Reason: wirev1.Code_CODE_ATTEMPTS_EXHAUSTED}
	w, err := c.WriteCursors(within(t), &meshv1.WriteCursorsRequest{Writes: []*meshv1.SessionWrite{
		{User: "u", Name: "other", Generation: 1},
		{User: "u", Name: "s", Generation: a.GetGeneration(), Cursors: []*meshv1.SessionCursor{{Topic: "room/1", Epoch: 1, Floor: 9}}, DeadLetters: []*meshv1.DeadLetter{letter}},
		{User: "u", Name: "s", Generation: a.GetGeneration() - 1},
	}})
	need(t, err)
	if got := fmt.Sprint(w.GetCodes()); got != "[CODE_NOT_FOUND CODE_OK CODE_SESSION_TAKEN_OVER]" {
		t.Errorf("codes %s", got)
	}
	g, err := c.GetSession(within(t), &meshv1.GetSessionRequest{User: "u", Name: "s"})
	need(t, err)
	if s := g.GetSession(); s.GetConnectionId() != 1<<63 || len(s.GetCursors()) != 1 || s.GetCursors()[0].GetFloor() != 9 {
		t.Errorf("session: %v", s)
	}
	list, err := c.ListSessions(within(t), &meshv1.ListSessionsRequest{})
	need(t, err)
	if len(list.GetSessions()) != 1 {
		t.Errorf("sessions: %v", list)
	}
	dead, err := c.ListDeadLetters(within(t), &meshv1.ListDeadLettersRequest{Filter: "room/#"})
	need(t, err)
	if len(dead.GetDeadLetters()) != 1 || dead.GetDeadLetters()[0].GetUser() != "u" || dead.GetDeadLetters()[0].GetSession() != "s" {
		t.Fatalf("dead letters: %v", dead)
	}
	n, err := c.DiscardDeadLetters(within(t), &meshv1.DiscardDeadLettersRequest{Ids: []uint64{dead.GetDeadLetters()[0].GetId()}})
	need(t, err)
	if n.GetDiscarded() != 1 {
		t.Errorf("discarded %d", n.GetDiscarded())
	}
	_, err = c.DeleteSession(within(t), &meshv1.DeleteSessionRequest{User: "u", Name: "s"})
	need(t, err)
	if _, err := c.GetSession(within(t), &meshv1.GetSessionRequest{User: "u", Name: "s"}); code.Of(err) != wirev1.Code_CODE_NOT_FOUND {
		t.Errorf("a deleted session: %v", err)
	}
}

func TestNamespaces(t *testing.T) {
	_, c := standalone(t, filepath.Join(t.TempDir(), "store.db"))
	list, err := c.ListNamespaces(within(t), &meshv1.ListNamespacesRequest{})
	need(t, err)
	if len(list.GetNamespaces()) != len(policy.Builtin()) {
		t.Errorf("built in: %v", list)
	}
	bad := &pushmeshv1.Namespace{Prefix: "a/+", Policy: &pushmeshv1.Policy{}}
	if _, err := c.PutNamespace(within(t), &meshv1.PutNamespaceRequest{Namespace: bad}); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
		t.Errorf("a bad prefix: %v", err)
	}
	put, err := c.PutNamespace(within(t), &meshv1.PutNamespaceRequest{Namespace: &pushmeshv1.Namespace{
		Prefix: "chat", Policy: &pushmeshv1.Policy{Durable: true, Retention: durationpb.New(time.Minute)},
	}})
	need(t, err)
	again, err := c.ListNamespaces(within(t), &meshv1.ListNamespacesRequest{HaveVersion: put.GetNamespace().GetVersion()})
	need(t, err)
	if again.GetVersion() != put.GetNamespace().GetVersion() || len(again.GetNamespaces()) != 0 {
		t.Errorf("unchanged: %v", again)
	}
	_, err = c.DeleteNamespace(within(t), &meshv1.DeleteNamespaceRequest{Prefix: "chat"})
	need(t, err)
	if _, err := c.DeleteNamespace(within(t), &meshv1.DeleteNamespaceRequest{Prefix: "room"}); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
		t.Errorf("delete of a builtin: %v", err)
	}
}

func TestReadyAndMetrics(t *testing.T) {
	st, c := standalone(t, filepath.Join(t.TempDir(), "store.db"))
	appendAll(t, c, item(1, "room/1", "x"))
	get := func(path string) (int, string) {
		resp, err := http.Get("http://" + st.HTTPAddr() + path)
		need(t, err)
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		need(t, err)
		return resp.StatusCode, string(body)
	}
	eventually(t, "readyz says that all is well", func() bool {
		status, body := get("/readyz?verbose")
		return status == http.StatusOK && strings.Contains(body, "database: ok") && strings.Contains(body, "shards: ok")
	})
	_, metrics := get("/metrics")
	for _, want := range []string{`pushmesh_store_appends_total{code="OK"} 1`, "pushmesh_store_commit_seconds_bucket", "pushmesh_store_commit_messages_sum 1"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

func TestSettingsReportAllFaults(t *testing.T) {
	s := Settings{ID: "a b", DB: "mysql://x", Listen: "nowhere", TraceRatio: 7}
	err := s.Check()
	for _, want := range []string{"id", "--db", "--listen", "--trace-ratio"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	s = Settings{DB: "sqlite:/tmp/x", Writers: 2}
	if err := s.Check(); err == nil || !strings.Contains(err.Error(), "--writers") {
		t.Errorf("two writers of SQLite: %v", err)
	}
}

func TestLeases(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lease.db")
	attach := func(c meshv1.StoreServiceClient, edge string, ms uint32) *meshv1.AttachSessionResponse {
		t.Helper()
		resp, err := c.AttachSession(within(t), &meshv1.AttachSessionRequest{User: "$group", Name: "g/t", EdgeId: edge, LeaseMs: ms})
		need(t, err)
		return resp
	}
	renew := func(c meshv1.StoreServiceClient, edge string, generation uint64) (got wirev1.Code) {
		t.Helper()
		eventually(t, "the store knows whose lease it is", func() bool {
			resp, err := c.RenewLeases(within(t), &meshv1.RenewLeasesRequest{
				EdgeId: edge, LeaseMs: 60_000, Leases: []*meshv1.RenewLeasesRequest_Lease{{User: "$group", Name: "g/t", Generation: generation}},
			})
			need(t, err)
			got = resp.GetCodes()[0]
			return !later(got)
		})
		return got
	}
	st, c := standalone(t, path)
	first := attach(c, "a", 60_000)
	if first.GetGeneration() == 0 || first.GetResumed() {
		t.Fatalf("first: %v", first)
	}
	if r := attach(c, "b", 60_000); r.GetGeneration() != 0 || r.GetPreviousEdge() != "a" {
		t.Fatalf("b got %v while a has it", r)
	}
	if got := renew(c, "a", first.GetGeneration()); got != wirev1.Code_CODE_OK {
		t.Fatalf("renewed: %v", got)
	}
	if got := renew(c, "b", first.GetGeneration()-1); got != wirev1.Code_CODE_SESSION_TAKEN_OVER {
		t.Fatalf("renewed by another: %v", got)
	}
	need(t, st.Stop(within(t)))

	// The next owner knows no lease: it gives the holder that is written down its time, and no
	// other.
	st, c = standalone(t, path)
	if r := attach(c, "b", 1); r.GetGeneration() != 0 || r.GetPreviousEdge() != "a" {
		t.Fatalf("b got %v from a new owner", r)
	}
	if got := renew(c, "a", first.GetGeneration()); got != wirev1.Code_CODE_OK {
		t.Fatalf("renewed at a new owner: %v", got)
	}
	need(t, st.Stop(within(t)))
	_, c = standalone(t, path)
	var second *meshv1.AttachSessionResponse
	for second = attach(c, "b", 1); second.GetGeneration() == 0; second = attach(c, "b", 1) {
	}
	if second.GetGeneration() <= first.GetGeneration() || second.GetPreviousEdge() != "a" || !second.GetResumed() {
		t.Fatalf("b took over: %v", second)
	}
	if got := renew(c, "a", first.GetGeneration()); got != wirev1.Code_CODE_SESSION_TAKEN_OVER {
		t.Fatalf("renewed after the takeover: %v", got)
	}
	attach(c, "b", 60_000)
	second = attach(c, "b", 60_000)
	done, err := c.WriteCursors(within(t), &meshv1.WriteCursorsRequest{Writes: []*meshv1.SessionWrite{
		{User: "$group", Name: "g/t", Generation: second.GetGeneration(), Detach: true},
	}})
	need(t, err)
	if done.GetCodes()[0] != wirev1.Code_CODE_OK {
		t.Fatal(done)
	}
	if r := attach(c, "a", 1000); r.GetGeneration() == 0 || r.GetPreviousEdge() != "" {
		t.Fatalf("after its release: %v", r)
	}
}
