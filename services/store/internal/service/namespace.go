package service

import (
	"context"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// PutNamespace sets a policy whose scorer a router has checked, and tells every tier.
func (s *Service) PutNamespace(ctx context.Context, req *meshv1.PutNamespaceRequest) (*meshv1.PutNamespaceResponse, error) {
	if err := policy.Check(req.GetNamespace(), policy.CheckSecrets); err != nil {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, err.Error())
	}
	stored, err := s.cfg.Backend.PutNamespace(ctx, req.GetNamespace())
	if err != nil {
		return nil, s.refused(ctx, "put namespace", err)
	}
	s.cfg.Changed()
	return &meshv1.PutNamespaceResponse{Namespace: stored}, nil
}

// ListNamespaces answers with every policy, or the version alone.
func (s *Service) ListNamespaces(ctx context.Context, req *meshv1.ListNamespacesRequest) (*meshv1.ListNamespacesResponse, error) {
	version, all, err := s.cfg.Backend.ListNamespaces(ctx, req.GetHaveVersion())
	if err != nil {
		return nil, s.refused(ctx, "list namespaces", err)
	}
	return &meshv1.ListNamespacesResponse{Version: version, Namespaces: all}, nil
}

// DeleteNamespace deletes one that did not come with the mesh, and tells every tier.
func (s *Service) DeleteNamespace(ctx context.Context, req *meshv1.DeleteNamespaceRequest) (*meshv1.DeleteNamespaceResponse, error) {
	if err := s.cfg.Backend.DeleteNamespace(ctx, req.GetPrefix()); err != nil {
		return nil, s.refused(ctx, "delete namespace", err)
	}
	s.cfg.Changed()
	return &meshv1.DeleteNamespaceResponse{}, nil
}
