package api

import (
	"context"
	"fmt"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// ModelLister tells which models there are (storeclient.Client).
type ModelLister interface {
	ListModels(ctx context.Context, req *meshv1.StoreServiceListModelsRequest) (*meshv1.StoreServiceListModelsResponse, error)
}

// modelsThere is NOT_FOUND where a policy's scorer, which may be nil, names a model or a version
// that there is not. A version that is deleted at the same moment may pass: rankings by it are
// NOT_FOUND then.
func (n *Namespace) modelsThere(ctx context.Context, s *pushmeshv1.ModelScorer) error {
	if s == nil {
		return nil
	}
	all, err := n.models.ListModels(ctx, &meshv1.StoreServiceListModelsRequest{})
	if err != nil {
		return code.From(err)
	}
	return versionsThere(s, all.GetModels())
}

// versionsThere compares what a scorer names with all that there is.
func versionsThere(s *pushmeshv1.ModelScorer, all []*pushmeshv1.Model) error {
	there := map[uint64]bool{}
	for _, m := range all {
		if m.GetName() == s.GetName() {
			there[0], there[m.GetVersion()] = true, true
		}
	}
	switch {
	case !there[0]:
		return code.New(wirev1.Code_CODE_NOT_FOUND, fmt.Sprintf("rank: there is no model %s", s.GetName()))
	case !there[s.GetVersion()]:
		return code.New(wirev1.Code_CODE_NOT_FOUND, fmt.Sprintf("rank: there is no model %s, version %d", s.GetName(), s.GetVersion()))
	case s.GetNextVersion() != 0 && !there[s.GetNextVersion()]:
		return code.New(wirev1.Code_CODE_NOT_FOUND, fmt.Sprintf("rank: there is no model %s, version %d (next_version)", s.GetName(), s.GetNextVersion()))
	}
	return nil
}
