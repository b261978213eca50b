package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/inprocess"
	"github.com/pushmesh/pushmesh/internal/code"
	identities "github.com/pushmesh/pushmesh/internal/identity/backends"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/backend"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/procmesh"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// record is what an auditor reads.
type record struct {
	ID, Who, Proof, Address, Call, About, Outcome, Message string
	Number                                                 uint64
	Before, After                                          struct {
		Version string
		Policy  struct{ MaxAttempts int }
	}
}

// TestAnAuditorReadsWhatOperatorsChange has two operators change a namespace and fail to, and two
// auditors read of it: one by a subscription, one in the log.
func TestAnAuditorReadsWhatOperatorsChange(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "backends.yaml")
	key := func(name string, roles ...string) (text, id string) {
		t.Helper()
		k, text, err := identities.Create(path, name, roles, time.Now(), time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		return text, k.ID
	}
	admin, adminID := key("admin", "operator")
	deploys, deploysID := key("deploys", "operator")
	watcher, _ := key("watcher", "consumer:$audit/#")
	reader, _ := key("reader", "auditor")
	all, _ := key("all", "consumer:#", "publisher:#")
	m := harness.Start(t, harness.Options{Key: admin, Change: func(s *inprocess.Settings) {
		s.Routers[0].Open, s.Routers[0].Backends = false, path
	}})
	as := func(key string) *grpc.ClientConn {
		t.Helper()
		conn, err := grpc.NewClient(m.RouterAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()), harness.Showing(key))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	s, _ := backend.Open(t, as(watcher), &wirev1.Hello{ClientId: "w"}, false)
	if sub, no := s.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "$audit/#"}); sub == nil {
		t.Fatalf("an auditor is refused: %v", no)
	}
	// everything else is no role for it
	other, _ := backend.Open(t, as(all), &wirev1.Hello{ClientId: "o"}, false)
	if sub, no := other.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "$audit/#"}); sub != nil || no.GetCode() != wirev1.Code_CODE_FORBIDDEN {
		t.Errorf("whoever may consume everything else reads the audit: %v, %v", sub, no)
	}
	if _, err := pushmeshv1.NewPublishServiceClient(as(admin)).Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: "$audit/NamespaceService/Put"}); code.Of(err) != wirev1.Code_CODE_FORBIDDEN {
		t.Errorf("an operator makes up a record: %v", err)
	}
	put := func(key string, attempts uint32) error {
		_, err := pushmeshv1.NewNamespaceServiceClient(as(key)).Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{
			Namespace: &pushmeshv1.Namespace{Prefix: "orders", Policy: &pushmeshv1.Policy{Durable: true, MaxAttempts: attempts}},
		})
		return err
	}
	if err := put(admin, 3); err != nil {
		t.Fatal(err)
	}
	if err := put(deploys, 4); err != nil {
		t.Fatal(err)
	}
	if err := put(admin, 100_000); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
		t.Fatal(err)
	}
	if err := put(reader, 5); code.Of(err) != wirev1.Code_CODE_FORBIDDEN {
		t.Fatal(err)
	}
	if _, err := pushmeshv1.NewNamespaceServiceClient(as(deploys)).Delete(t.Context(), &pushmeshv1.NamespaceServiceDeleteRequest{Prefix: "orders"}); err != nil {
		t.Fatal(err)
	}
	text := func(r record) string {
		return fmt.Sprint(r.Number, " ", r.Who, " ", r.Proof, " ", r.Call, " ", r.About, ": ", r.Before.Policy.MaxAttempts, " to ", r.After.Policy.MaxAttempts, ", ", r.Outcome)
	}
	want := []string{
		"1 backend:admin key " + adminID + " NamespaceService/Put orders: 0 to 3, OK",
		"2 backend:deploys key " + deploysID + " NamespaceService/Put orders: 3 to 4, OK",
		"3 backend:admin key " + adminID + " NamespaceService/Put orders: 0 to 0, INVALID_ARGUMENT",
		"4 backend:deploys key " + deploysID + " NamespaceService/Delete orders: 4 to 0, OK",
	}
	for i := range want {
		var r record
		msg := s.Message()
		if err := json.Unmarshal(msg.GetPayload(), &r); err != nil {
			t.Fatal(err)
		}
		if text(r) != want[i] || msg.GetSeq() == 0 || !strings.HasPrefix(r.Address, "127.0.0.1:") || (r.Outcome != "OK") != strings.Contains(r.Message, "max_attempts") {
			t.Errorf("on %s an auditor is told %s, want %s: %s", msg.GetTopic(), text(r), want[i], msg.GetPayload())
		}
		for _, secret := range []string{admin, deploys} {
			if strings.Contains(string(msg.GetPayload()), secret[24:]) {
				t.Error("a key is in a record")
			}
		}
	}
	stream, err := pushmeshv1.NewHistoryServiceClient(as(reader)).Read(t.Context(), &pushmeshv1.ReadRequest{Topic: "$audit/NamespaceService/Put", FromSeq: 1})
	if err != nil {
		t.Fatal(err)
	}
	page, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	for i, msg := range page.GetMessages() {
		var r record
		if err := json.Unmarshal(msg.GetPayload(), &r); err != nil || text(r) != want[i] {
			t.Errorf("in the log: %s, want %s, %v", text(r), want[i], err)
		}
	}
	if n := len(page.GetMessages()); n != 3 {
		t.Errorf("%d records of Put are in the log", n)
	}
}

// TestAKilledRouterHasLoggedWhatItAnswered kills a router right after an answer: the change is in
// its log, whatever is on $audit.
func TestAKilledRouterHasLoggedWhatItAnswered(t *testing.T) {
	m := procmesh.Start(t, procmesh.Options{RouterArgs: []string{"--log-level", "error"}})
	conn, err := grpc.NewClient(m.RouterAddrs[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	namespaces := pushmeshv1.NewNamespaceServiceClient(conn)
	for n := range 20 {
		if _, err := namespaces.Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{
			Namespace: &pushmeshv1.Namespace{Prefix: fmt.Sprint("n", n), Policy: &pushmeshv1.Policy{Durable: true}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	m.Routers[0].Kill()
	data, err := os.ReadFile(m.Routers[0].Log)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 20 {
		if want := fmt.Sprintf(" call=NamespaceService/Put about=n%d ", n); strings.Count(string(data), want) != 1 {
			t.Errorf("the log does not have%s", want)
		}
	}
	if strings.Count(string(data), " outcome=OK") != 20 {
		t.Error("the log has other outcomes")
	}
}

// TestAnEdgeLogsWhatItRefuses is --audit-decisions of an edge, from the flag to the line.
func TestAnEdgeLogsWhatItRefuses(t *testing.T) {
	m := procmesh.Start(t, procmesh.Options{EdgeArgs: []string{"--audit-decisions", "1", "--log-level", "error"}})
	client, _ := wireclient.Connect(t, m.EdgeAddrs[0], &wirev1.Hello{ClientId: "phone"})
	client.Send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "$audit/#"})
	if no := wireclient.Expect(client, wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{}); no.GetCode() != wirev1.Code_CODE_FORBIDDEN {
		t.Fatal(no)
	}
	procmesh.Await(t, "the edge has logged it", func() bool {
		data, err := os.ReadFile(m.Edges[0].Log)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(data), "msg=decision") && strings.Contains(string(data), "who=client:phone") && strings.Contains(string(data), "what=request outcome=FORBIDDEN")
	})
}
