package python

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/procmesh"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

var examples = []string{"follow", "chat", "worker", "seat", "presence", "publish"}

func example(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(sdk, "examples", name+".py"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestREADMEShowsTheProgramsThatRun(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(sdk, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range examples {
		if !strings.Contains(string(b), "```python\n"+example(t, name)+"```") {
			t.Errorf("README.md shows another %s", name)
		}
	}
}

// mesh is a `pushmesh dev` with the namespaces that the programs need.
type mesh struct {
	*procmesh.Dev
	publish pushmeshv1.PublishServiceClient
}

func startMesh(t *testing.T) *mesh {
	t.Helper()
	m := &mesh{Dev: procmesh.StartDev(t)}
	conn, err := grpc.NewClient(m.Router, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	m.publish = pushmeshv1.NewPublishServiceClient(conn)
	long := durationpb.New(patience)
	for _, n := range []*pushmeshv1.Namespace{
		{Prefix: "chat", Policy: &pushmeshv1.Policy{
			Durable: true, ClientPublish: true, ClientPresence: pushmeshv1.ClientPresence_CLIENT_PRESENCE_MEMBERS,
		}},
		{Prefix: "seat", Policy: &pushmeshv1.Policy{Claims: &pushmeshv1.ClaimPolicy{Clients: true, Ttl: long, MaxTtl: long, OfferTtl: long, Grace: long}}},
	} {
		if _, err := pushmeshv1.NewNamespaceServiceClient(conn).Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{Namespace: n}); err != nil {
			t.Fatal(err)
		}
	}
	probe, _ := wireclient.Connect(t, m.Edge, &wirev1.Hello{})
	id := uint32(0)
	procmesh.Await(t, "clients may claim", func() bool {
		// so they may publish, which was put before
		id++
		probe.Send(wirev1.FrameType_FRAME_TYPE_CLAIM, &wirev1.Claim{Id: id, Resource: "seat/probe", Op: wirev1.Claim_OP_CHECK})
		ft, _, err := probe.Next(wireclient.Patience)
		if err != nil {
			t.Fatal(err)
		}
		return ft == wirev1.FrameType_FRAME_TYPE_CLAIM_STATE
	})
	return m
}

// run starts an example with the addresses of the mesh.
func (m *mesh) run(t *testing.T, name string, args ...string) *program {
	t.Helper()
	text := strings.NewReplacer("127.0.0.1:7400", m.Edge, "127.0.0.1:7401", m.Router).Replace(example(t, name))
	path := filepath.Join(t.TempDir(), name+".py")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return python(t, path, args...)
}

// say publishes as a backend.
func (m *mesh) say(t *testing.T, topic, payload string) {
	t.Helper()
	if _, err := m.publish.Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: topic, Payload: []byte(payload)}); err != nil {
		t.Fatal(err)
	}
}

func TestProgramsRun(t *testing.T) {
	m := startMesh(t)
	t.Run("follow and publish", func(t *testing.T) {
		follow := m.run(t, "follow")
		follow.saysAll("listening")
		publish := m.run(t, "publish")
		publish.saysAll("on disk as number 1", "on disk as number 2", "on disk as number 3")
		publish.ends()
		follow.saysAll("room/42/chat 1 hello", "room/42/chat 2 are you there?", "room/42/chat 3 bye")
	})
	t.Run("chat and presence", func(t *testing.T) {
		ann := m.run(t, "chat", "ann")
		ann.saysAll("you are in")
		watch := m.run(t, "presence")
		watch.saysAll("+ client:ann typing")
		bob := m.run(t, "chat", "bob")
		bob.saysAll("you are in")
		watch.saysAll("+ client:bob ")
		bob.tell("hello")
		ann.saysAll("client:bob: hello")
		ann.tell("hello yourself")
		bob.saysAll("client:ann: hello yourself")
		bob.ends()
		watch.saysAll("- client:bob")
		ann.ends()
	})
	t.Run("worker", func(t *testing.T) {
		worker := m.run(t, "worker")
		worker.saysAll("ready")
		m.say(t, "room/42/jobs", "too early")
		worker.saysAll("done: too early")
		m.say(t, "room/42/jobs", "sweep")
		worker.saysAll("done: sweep")
	})
	t.Run("seat", func(t *testing.T) {
		first := m.run(t, "seat")
		if got := first.says(); !strings.HasPrefix(got, "seated, token ") {
			t.Fatalf("seat says %q", got)
		}
		first.saysAll("held to the end")
		first.ends()
	})
}
