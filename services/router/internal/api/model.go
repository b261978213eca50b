package api

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/trees"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/audit"
)

// ModelStore is what Rank needs of the store (storeclient.Client).
type ModelStore interface {
	ModelLister
	PutModel(ctx context.Context, m *pushmeshv1.Model, file []byte) (*pushmeshv1.Model, error)
	DeleteModel(ctx context.Context, name string, version uint64) error
}

// ListModels implements RankService.
func (r *Rank) ListModels(ctx context.Context, req *pushmeshv1.ListModelsRequest) (*pushmeshv1.ListModelsResponse, error) {
	all, err := r.models.ListModels(ctx, &meshv1.StoreServiceListModelsRequest{})
	if err != nil {
		return nil, code.From(err)
	}
	namespaces, err := r.namespaces.all(ctx)
	if err != nil {
		return nil, err
	}
	resp := &pushmeshv1.ListModelsResponse{}
	last := ""
	for _, m := range all.GetModels() { // by name, newest version first
		newest := m.GetName() != last
		last = m.GetName()
		if req.GetName() != "" && req.GetName() != m.GetName() {
			continue
		}
		for _, ns := range namespaces {
			if policy.UsesModel(ns, m.GetName(), m.GetVersion(), newest) {
				m.UsedBy = append(m.UsedBy, ns.GetPrefix())
			}
		}
		resp.Models = append(resp.Models, m)
	}
	return resp, nil
}

// DeleteModel implements RankService. A policy that is put at the same moment may name what is
// deleted: its rankings are refused then (NOT_FOUND).
func (r *Rank) DeleteModel(ctx context.Context, req *pushmeshv1.DeleteModelRequest) (*pushmeshv1.DeleteModelResponse, error) {
	if err := trees.CheckName(req.GetName()); err != nil {
		return nil, err
	}
	if req.GetVersion() == 0 {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "version is missing")
	}
	found, err := r.ListModels(ctx, &pushmeshv1.ListModelsRequest{Name: req.GetName()})
	if err != nil {
		return nil, err
	}
	audit.Before(ctx, nil)
	for _, m := range found.GetModels() {
		if m.GetVersion() != req.GetVersion() {
			continue
		}
		audit.Before(ctx, m)
		if len(m.GetUsedBy()) > 0 {
			return nil, code.New(wirev1.Code_CODE_CONFLICT, fmt.Sprintf("model %s, version %d, is named by the policies of %s",
				req.GetName(), req.GetVersion(), strings.Join(m.GetUsedBy(), ", ")))
		}
	}
	if err := r.models.DeleteModel(ctx, req.GetName(), req.GetVersion()); err != nil {
		return nil, code.From(err)
	}
	audit.After(ctx, nil)
	return &pushmeshv1.DeleteModelResponse{}, nil
}

// RollBack implements RankService. Where it ends with an error, some namespaces may have been put
// back: it can be called again.
func (r *Rank) RollBack(ctx context.Context, req *pushmeshv1.RollBackRequest) (*pushmeshv1.RollBackResponse, error) {
	if err := trees.CheckName(req.GetName()); err != nil {
		return nil, err
	}
	namespaces, err := r.namespaces.all(ctx)
	if err != nil {
		return nil, err
	}
	resp, version := &pushmeshv1.RollBackResponse{}, uint64(0)
	before, after := map[string]*pushmeshv1.ModelScorer{}, map[string]*pushmeshv1.ModelScorer{}
	defer func() { // an error may come after some
		audit.Before(ctx, before)
		audit.After(ctx, after)
	}()
	for _, ns := range namespaces {
		m := ns.GetPolicy().GetRank().GetModel()
		if m.GetName() != req.GetName() || m.GetNextVersion() == 0 {
			continue
		}
		back := proto.CloneOf(ns)
		m = back.GetPolicy().GetRank().GetModel()
		m.NextVersion, m.NextShare = 0, 0
		// Whether the version that it pins is there is not asked: what fails is taken out all the
		// same.
		now, err := r.namespaces.put(ctx, back)
		if err != nil {
			return nil, err
		}
		version = max(version, now.GetVersion())
		before[ns.GetPrefix()], after[ns.GetPrefix()] = ns.GetPolicy().GetRank().GetModel(), now.GetPolicy().GetRank().GetModel()
		resp.Namespaces = append(resp.Namespaces, ns.GetPrefix())
	}
	if version > 0 {
		r.namespaces.await(ctx, version, r.namespaces.live())
	}
	return resp, nil
}
