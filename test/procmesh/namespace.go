package procmesh

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
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

var namespacesVersion = regexp.MustCompile(`(?m)^pushmesh_[a-z]+_namespaces_version (\S+)$`)

// KnowNamespaces waits until every process that runs goes by that version of the namespaces, or a
// later one.
func (m *Mesh) KnowNamespaces(ctx context.Context, version uint64) error {
	for _, ps := range [][]*Process{m.Stores, m.Routers, m.Edges} {
		for _, p := range ps {
			if err := p.knowNamespaces(ctx, version); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *Process) knowNamespaces(ctx context.Context, version uint64) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		known, err := p.namespaces(ctx)
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

// namespaces is the version of them that the process goes by; 0: it does not know any, or does not
// answer.
func (p *Process) namespaces(ctx context.Context) (version uint64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.HTTP+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	found := namespacesVersion.FindSubmatch(body)
	if err != nil || found == nil {
		return 0, err
	}
	f, err := strconv.ParseFloat(string(found[1]), 64)
	return uint64(f), err
}
