package api

import (
	"context"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/score"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/audit"
)

// NamespaceStore is what Namespace needs of the store (storeclient.Client).
type NamespaceStore interface {
	PutNamespace(ctx context.Context, req *meshv1.PutNamespaceRequest) (*meshv1.PutNamespaceResponse, error)
	ListNamespaces(ctx context.Context, req *meshv1.ListNamespacesRequest) (*meshv1.ListNamespacesResponse, error)
	DeleteNamespace(ctx context.Context, req *meshv1.DeleteNamespaceRequest) (*meshv1.DeleteNamespaceResponse, error)
}

// Namespace is pushmesh.v1.NamespaceService.
type Namespace struct {
	pushmeshv1.UnimplementedNamespaceServiceServer
	store  NamespaceStore
	models ModelLister
	nodes  Nodes
	await  AwaitVersion
}

// AwaitVersion waits until nodes (bus.Node) and this router use a version of the namespaces, and
// returns those that don't in time.
type AwaitVersion func(ctx context.Context, version uint64, nodes []string) (lagging []string)

// NewNamespace makes the service. models are those that policies may name; nodes are those that
// must go by a change, besides this router.
func NewNamespace(store NamespaceStore, models ModelLister, nodes Nodes, await AwaitVersion) *Namespace {
	return &Namespace{store: store, models: models, nodes: nodes, await: await}
}

// live are the nodes that are heard and go by namespaces.
func (n *Namespace) live() (all []string) {
	for _, node := range n.nodes.List() {
		if tier := tiers[node.GetTier()]; tier != "" && node.GetProblem() == "" {
			all = append(all, bus.Node(tier, node.GetId()))
		}
	}
	return all
}

var tiers = map[pushmeshv1.Tier]string{
	pushmeshv1.Tier_TIER_EDGE: "edge", pushmeshv1.Tier_TIER_ROUTER: "router", pushmeshv1.Tier_TIER_STORE: "store",
}

// Put implements NamespaceService.
func (n *Namespace) Put(ctx context.Context, req *pushmeshv1.NamespaceServicePutRequest) (*pushmeshv1.NamespaceServicePutResponse, error) {
	if err := policy.Check(req.GetNamespace(), score.CheckNamespace, policy.CheckSecrets); err != nil {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, err.Error())
	}
	if err := n.modelsThere(ctx, req.GetNamespace().GetPolicy().GetRank().GetModel()); err != nil {
		return nil, err
	}
	n.tellBefore(ctx, req.GetNamespace().GetPrefix())
	ns, err := n.put(ctx, req.GetNamespace())
	if err != nil {
		return nil, err
	}
	audit.After(ctx, ns)
	return &pushmeshv1.NamespaceServicePutResponse{Namespace: ns, Lagging: n.await(ctx, ns.GetVersion(), n.live())}, nil
}

// readBefore is how long the audit may hold up a change to read what is there before it.
const readBefore = time.Second

// tellBefore tells the audit what is there just before a change. Others may change it in between.
func (n *Namespace) tellBefore(ctx context.Context, prefix string) {
	if !audit.Asked(ctx) {
		return
	}
	once, cancel := context.WithTimeout(ctx, readBefore)
	defer cancel()
	all, err := n.all(once)
	if err != nil {
		audit.Before(ctx, err)
		return
	}
	for _, ns := range all {
		if ns.GetPrefix() == prefix {
			audit.Before(ctx, ns)
			return
		}
	}
	audit.Before(ctx, nil)
}

// put a policy that was checked. Nodes may not go by it yet.
func (n *Namespace) put(ctx context.Context, ns *pushmeshv1.Namespace) (*pushmeshv1.Namespace, error) {
	resp, err := n.store.PutNamespace(ctx, &meshv1.PutNamespaceRequest{Namespace: ns})
	if err != nil {
		return nil, code.From(err)
	}
	return resp.GetNamespace(), nil
}

// Get implements NamespaceService.
func (n *Namespace) Get(ctx context.Context, req *pushmeshv1.NamespaceServiceGetRequest) (*pushmeshv1.NamespaceServiceGetResponse, error) {
	all, err := n.all(ctx)
	if err != nil {
		return nil, err
	}
	for _, ns := range all {
		if ns.GetPrefix() == req.GetPrefix() {
			return &pushmeshv1.NamespaceServiceGetResponse{Namespace: ns}, nil
		}
	}
	return nil, code.New(wirev1.Code_CODE_NOT_FOUND, fmt.Sprintf("there is no namespace %.300q", req.GetPrefix()))
}

// List implements NamespaceService.
func (n *Namespace) List(ctx context.Context, _ *pushmeshv1.NamespaceServiceListRequest) (*pushmeshv1.NamespaceServiceListResponse, error) {
	all, err := n.all(ctx)
	if err != nil {
		return nil, err
	}
	return &pushmeshv1.NamespaceServiceListResponse{Namespaces: all}, nil
}

func (n *Namespace) all(ctx context.Context) ([]*pushmeshv1.Namespace, error) {
	resp, err := n.store.ListNamespaces(ctx, &meshv1.ListNamespacesRequest{})
	if err != nil {
		return nil, code.From(err)
	}
	return resp.GetNamespaces(), nil
}

// Delete implements NamespaceService.
func (n *Namespace) Delete(ctx context.Context, req *pushmeshv1.NamespaceServiceDeleteRequest) (*pushmeshv1.NamespaceServiceDeleteResponse, error) {
	for _, b := range policy.Builtin() {
		if b.GetPrefix() == req.GetPrefix() {
			return nil, code.New(wirev1.Code_CODE_FORBIDDEN, "namespace "+req.GetPrefix()+" is built in: it can be changed but not deleted")
		}
	}
	n.tellBefore(ctx, req.GetPrefix())
	if _, err := n.store.DeleteNamespace(ctx, &meshv1.DeleteNamespaceRequest{Prefix: req.GetPrefix()}); err != nil {
		return nil, code.From(err)
	}
	audit.After(ctx, nil)
	lagging := n.live()
	if all, err := n.store.ListNamespaces(ctx, &meshv1.ListNamespacesRequest{}); err == nil {
		// otherwise it is deleted, and nobody was asked
		lagging = n.await(ctx, all.GetVersion(), lagging)
	}
	return &pushmeshv1.NamespaceServiceDeleteResponse{Lagging: lagging}, nil
}
