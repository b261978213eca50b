package router

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func (s *fakeStore) PutModel(stream grpc.ClientStreamingServer[meshv1.StoreServicePutModelRequest, meshv1.StoreServicePutModelResponse]) error {
	req, err := stream.Recv()
	if err != nil {
		return err
	}
	m := req.GetModel()
	for n := len(req.GetData()); ; n += len(req.GetData()) {
		if req, err = stream.Recv(); errors.Is(err, io.EOF) {
			if uint64(n) != m.GetBytes() {
				return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "another number of bytes than announced")
			}
			break
		} else if err != nil {
			return err
		}
	}
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	m.Version = 1
	for _, other := range s.log.models {
		if other.GetName() == m.GetName() {
			m.Version = max(m.GetVersion(), other.GetVersion()+1)
		}
	}
	s.log.models = append(s.log.models, m)
	slices.SortFunc(s.log.models, func(a, b *pushmeshv1.Model) int {
		return cmp.Or(cmp.Compare(a.GetName(), b.GetName()), cmp.Compare(b.GetVersion(), a.GetVersion()))
	})
	return stream.SendAndClose(&meshv1.StoreServicePutModelResponse{Model: m})
}

func (s *fakeStore) ListModels(context.Context, *meshv1.StoreServiceListModelsRequest) (*meshv1.StoreServiceListModelsResponse, error) {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	return &meshv1.StoreServiceListModelsResponse{Revision: 1, Models: slices.Clone(s.log.models)}, nil
}

func (s *fakeStore) DeleteModel(_ context.Context, req *meshv1.StoreServiceDeleteModelRequest) (*meshv1.StoreServiceDeleteModelResponse, error) {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	for i, m := range s.log.models {
		if m.GetName() == req.GetName() && m.GetVersion() == req.GetVersion() {
			s.log.models = slices.Delete(s.log.models, i, i+1)
			return &meshv1.StoreServiceDeleteModelResponse{}, nil
		}
	}
	return nil, code.New(wirev1.Code_CODE_NOT_FOUND, "no such version")
}
