package procmesh

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Namespace makes a namespace of a test's own, or changes one, and waits until every process goes
// by it. A test's traffic belongs into such: the namespaces that come with a mesh are known to a
// process that has asked nobody.
func (m *Mesh) Namespace(t testing.TB, prefix string, policy *pushmeshv1.Policy) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := grpc.NewClient(m.RouterAddrs[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	res, err := pushmeshv1.NewNamespaceServiceClient(conn).Put(ctx, &pushmeshv1.NamespaceServicePutRequest{
		Namespace: &pushmeshv1.Namespace{Prefix: prefix, Policy: policy},
	})
	if err == nil {
		err = m.KnowNamespaces(ctx, res.GetNamespace().GetVersion())
	}
	if err != nil {
		t.Fatalf("namespace %s: %v", prefix, err)
	}
}

// KnowNamespaces waits until every process that runs goes by that version of the namespaces, or a
// later one.
func (m *Mesh) KnowNamespaces(ctx context.Context, version uint64) error {
	for _, ps := range [][]*Process{m.Stores, m.Routers, m.Edges} {
		for _, p := range ps {
			if err := knowNamespaces(ctx, p, version); err != nil {
				return err
			}
		}
	}
	return nil
}

func knowNamespaces(ctx context.Context, p *Process, version uint64) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		known, err := namespaces(ctx, p)
		if known >= version {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s goes by version %d of the namespaces, not %d: %w", p.Name, known, version, err)
		case <-tick.C:
		}
	}
}

// namespaces is the version of them that a process goes by; 0: it does not know any, or does not
// answer.
func namespaces(ctx context.Context, p *Process) (version uint64, err error) {
	metrics, err := p.Metrics(ctx)
	tier, _, _ := strings.Cut(p.Name, "-")
	return uint64(metrics["pushmesh_"+tier+"_namespaces_version"]), err
}
