package gate

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity/backends"
	pb "github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/audit"
)

// changed is the text of an audit line of a call.
func changed(t *testing.T, said, call string) string {
	t.Helper()
	found := ""
	for line := range strings.Lines(said) {
		if strings.Contains(line, "msg=audit") && strings.Contains(line, "call="+strings.TrimPrefix(call, "pushmesh.v1.")+" ") {
			if found != "" {
				t.Errorf("%s is in the log twice", call)
			}
			found = line
		}
	}
	return found
}

// Every call that changes something leaves one record, also where it fails: with who, how proven,
// from where, and the code that the caller was told. What only reads, and what is refused, leaves
// none.
func TestEveryChangeLeavesARecord(t *testing.T) {
	t.Parallel()
	s := serve(t, map[string][]string{"boss": {"operator"}, "reader": {"auditor"}})
	for name, m := range methods() {
		if m.Name() == "Acquire" || name == "pushmesh.v1.ClaimService/Watch" {
			continue
		}
		_ = s.call(s.as(t, "reader"), name, m, about(t, m, "x"))
		if need := needs[name]; need.about != nil {
			if line := changed(t, s.log.String(), name); line != "" {
				t.Errorf("%s was refused, and the log says %s", name, line)
			}
		}
		err := s.call(s.as(t, "boss"), name, m, about(t, m, "x"))
		line := changed(t, s.log.String(), name)
		if need := needs[name]; need.about == nil {
			if line != "" {
				t.Errorf("%s changes nothing, and the log says %s", name, line)
			}
			continue
		}
		for _, want := range []string{"who=backend:boss", `proof="key `, "address=127.0.0.1:", "about=", "outcome=" + code.Name(code.Of(err)) + " ", "level=WARN"} {
			if !strings.Contains(line, want) {
				t.Errorf("%s: %q is not in %q", name, want, line)
			}
		}
	}
	for _, text := range s.keys {
		if strings.Contains(s.log.String(), text[20:]) {
			t.Error("a key is in the log")
		}
	}
}

// The docs list all changes, with what is said of each.
func TestTheDocsHaveAllChanges(t *testing.T) {
	data, err := os.ReadFile("../../../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	var said, are []string
	for _, found := range regexp.MustCompile("(?m)^\\| `\\$audit/([A-Za-z]+/[A-Za-z]+)` \\|").FindAllStringSubmatch(string(data), -1) {
		said = append(said, "pushmesh.v1."+found[1])
	}
	for name, need := range needs {
		if need.about != nil {
			are = append(are, name)
		}
	}
	slices.Sort(said)
	slices.Sort(are)
	if !slices.Equal(said, are) {
		t.Errorf("the docs have\n%v, changes are\n%v", said, are)
	}
}

// alone is a call that a gate handles, without a server.
func alone(t *testing.T, log *lines, name string, handle func(ctx context.Context) error) (run func(ctx context.Context) error, c *call) {
	t.Helper()
	need := needs[name]
	c = &call{gate: New(Config{Log: slog.New(slog.NewTextHandler(log, nil)), Caller: func(context.Context) string { return "token:x" }}), name: name, need: &need}
	return func(ctx context.Context) error {
		_, err := c.audited(ctx, handle)
		return err
	}, c
}

const put = "pushmesh.v1.NamespaceService/Put"

// With --open everybody may make changes, and what they are about is whatever was sent: a line of
// the log is told what it was, and has no megabytes.
func TestALineOfTheLogIsBounded(t *testing.T) {
	var log lines
	long := "orders/" + strings.Repeat("\n", 1<<20)
	var c *call
	run, c := alone(t, &log, put, func(ctx context.Context) error {
		req := &pb.NamespaceServicePutRequest{Namespace: &pb.Namespace{Prefix: long}}
		if err := c.begin(ctx, req); err != nil {
			return err
		}
		audit.Before(ctx, req.GetNamespace())
		audit.After(ctx, long)
		return errors.New(long)
	})
	if err := run(t.Context()); err == nil {
		t.Error("the error is gone")
	}
	if said := log.String(); !strings.Contains(said, "orders/") || !strings.Contains(said, `proof="none (--open)"`) || len(said) > 32<<10 || strings.Count(said, "\n") != 1 {
		t.Errorf("a line has %d bytes and %d ends", len(said), strings.Count(said, "\n"))
	}
}

// A handler that panics ends the process; what it had begun is in the log by then.
func TestAPanicLeavesARecord(t *testing.T) {
	var log lines
	var c *call
	run, c := alone(t, &log, put, func(ctx context.Context) error {
		if err := c.begin(ctx, &pb.NamespaceServicePutRequest{Namespace: &pb.Namespace{Prefix: "orders"}}); err != nil {
			return err
		}
		audit.Before(ctx, nil)
		panic("a fault")
	})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is gone")
			}
		}()
		_ = run(t.Context())
	}()
	if line := changed(t, log.String(), put); !strings.Contains(line, "outcome=INTERNAL") || !strings.Contains(line, "before=null") || !strings.Contains(line, "panicked") {
		t.Errorf("the log says %q", line)
	}
}

// A call whose client leaves has a record when its handler ends.
func TestACancelledChangeLeavesARecord(t *testing.T) {
	var log lines
	ctx, cancel := context.WithCancel(t.Context())
	var c *call
	run, c := alone(t, &log, put, func(ctx context.Context) error {
		if err := c.begin(ctx, &pb.NamespaceServicePutRequest{Namespace: &pb.Namespace{Prefix: "orders"}}); err != nil {
			return err
		}
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	_ = run(ctx)
	if line := changed(t, log.String(), put); !strings.Contains(line, "outcome=CANCELLED") {
		t.Errorf("the log says %q", line)
	}
}

// receiving is a RankService whose PutModel goes on when its call has ended.
type receiving struct {
	pb.UnimplementedRankServiceServer
	began, goOn chan struct{}
}

func (r *receiving) PutModel(s grpc.ClientStreamingServer[pb.PutModelRequest, pb.PutModelResponse]) error {
	if _, err := s.Recv(); err != nil {
		return err
	}
	close(r.began)
	<-s.Context().Done()
	<-r.goOn
	audit.After(s.Context(), "stored")
	return nil
}

// A stream that is ended since its caller lost a role has a record once its handler has ended, with
// what that did and what the caller was told.
func TestAStreamThatIsEndedLeavesARecord(t *testing.T) {
	t.Parallel()
	rank := &receiving{began: make(chan struct{}), goOn: make(chan struct{})}
	s := serveWith(t, map[string][]string{"a": {"operator"}}, rank)
	stream, err := pb.NewRankServiceClient(s.conn).PutModel(s.as(t, "a"))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&pb.PutModelRequest{Name: "ctr"}); err != nil {
		t.Fatal(err)
	}
	<-rank.began
	p, err := backends.ReadKey(s.keys["a"])
	if err != nil {
		t.Fatal(err)
	}
	if err := backends.Revoke(s.path, p.KeyID); err != nil {
		t.Fatal(err)
	}
	if err := stream.RecvMsg(&pb.PutModelResponse{}); code.Of(err) != wirev1.Code_CODE_UNAUTHENTICATED {
		t.Fatalf("the stream ended with %v", err)
	}
	if line := changed(t, s.log.String(), "pushmesh.v1.RankService/PutModel"); line != "" {
		t.Errorf("before the handler has ended the log says %s", line)
	}
	close(rank.goOn)
	deadline, tick := time.After(patience), time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		line := changed(t, s.log.String(), "pushmesh.v1.RankService/PutModel")
		if strings.Contains(line, "about=ctr") && strings.Contains(line, `after="\"stored\""`) && strings.Contains(line, "outcome=OK") && strings.Contains(line, "the caller was told UNAUTHENTICATED") {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("the log says %q", line)
		}
	}
}

// Decisions that are logged name the rule: the role that lets a call in, or what refuses it.
func TestDecisionsNameTheirRule(t *testing.T) {
	t.Parallel()
	s := serve(t, map[string][]string{"a": {"consumer:mine/#", "consumer:other/1", "publisher:mine/#"}, "b": {"auditor"}})
	api, ns := pb.NewHistoryServiceClient(s.conn), pb.NewNamespaceServiceClient(s.conn)
	head := func(who string, topics ...string) {
		_, _ = api.Head(s.as(t, who), &pb.HeadRequest{Topics: topics})
	}
	head("a", "mine/1")
	head("a", "mine/1", "other/1")
	head("a", "more/1")
	head("b", "more/1")
	_, _ = ns.Delete(s.as(t, "b"), &pb.NamespaceServiceDeleteRequest{Prefix: "x"})
	_, _ = ns.List(t.Context(), &pb.NamespaceServiceListRequest{})
	var got []string
	for line := range strings.Lines(s.log.String()) {
		if _, rest, is := strings.Cut(line, "msg=decision "); is {
			rest = regexp.MustCompile(`from=\S+ | message=.*`).ReplaceAllString(strings.TrimSpace(rest), "")
			got = append(got, rest)
		}
	}
	want := []string{
		`who=backend:a what=pushmesh.v1.HistoryService/Head outcome=OK rule=consumer:mine/#`,
		`who=backend:a what=pushmesh.v1.HistoryService/Head outcome=OK rule="consumer:mine/#, consumer:other/1"`,
		`who=backend:a what=pushmesh.v1.HistoryService/Head outcome=FORBIDDEN rule=default-deny`,
		`who=backend:b what=pushmesh.v1.HistoryService/Head outcome=OK rule=auditor`,
		`who=backend:b what=pushmesh.v1.NamespaceService/Delete outcome=FORBIDDEN rule=default-deny`,
		`who="" what=pushmesh.v1.NamespaceService/List outcome=UNAUTHENTICATED rule=""`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("the log has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
