package service

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/trees"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

const (
	// maxModel is the most bytes of a model file.
	maxModel = 64 << 20
	// modelsAtOnce are being put, each with its file in memory; others wait, for modelWait at most.
	modelsAtOnce = 2
	modelWait    = 5 * time.Second
)

// PutModel keeps a file that a router has checked.
func (s *Service) PutModel(stream grpc.ClientStreamingServer[meshv1.StoreServicePutModelRequest, meshv1.StoreServicePutModelResponse]) error {
	ctx := stream.Context()
	turn, cancel := context.WithTimeout(ctx, modelWait)
	defer cancel()
	select {
	case s.putting <- struct{}{}:
		defer func() { <-s.putting }()
	case <-turn.Done():
		return code.Retry(wirev1.Code_CODE_OVERLOADED, modelWait, "other models are being stored")
	}
	m, file, err := receiveModel(stream)
	if err != nil {
		return err
	}
	m.Version, m.CreatedAt = 0, timestamppb.New(time.UnixMicro(int64(s.now())))
	stored, err := s.cfg.Backend.PutModel(ctx, m, file)
	if err != nil {
		return s.refused(ctx, "put model", err)
	}
	return stream.SendAndClose(&meshv1.StoreServicePutModelResponse{Model: stored})
}

// receiveModel takes a whole file that is what its description says.
func receiveModel(stream grpc.ClientStreamingServer[meshv1.StoreServicePutModelRequest, meshv1.StoreServicePutModelResponse]) (*pushmeshv1.Model, []byte, error) {
	req, err := stream.Recv()
	if err != nil {
		return nil, nil, err
	}
	m := req.GetModel()
	if err := trees.CheckName(m.GetName()); err != nil {
		return nil, nil, err
	}
	if m.GetBytes() == 0 || m.GetBytes() > maxModel {
		return nil, nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, fmt.Sprintf("a model has 1 to %d bytes, not %d", maxModel, m.GetBytes()))
	}
	file := make([]byte, 0, m.GetBytes())
	for {
		if uint64(len(file)+len(req.GetData())) > m.GetBytes() {
			return nil, nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, fmt.Sprintf("the file has more than the %d bytes announced", m.GetBytes()))
		}
		file = append(file, req.GetData()...)
		if req, err = stream.Recv(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, nil, err
		}
	}
	if sum := sha256.Sum256(file); !bytes.Equal(sum[:], m.GetDigest()) {
		return nil, nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "the file's digest differs from the one announced")
	}
	return m, file, nil
}

// ListModels answers with every version, or the revision alone.
func (s *Service) ListModels(ctx context.Context, req *meshv1.StoreServiceListModelsRequest) (*meshv1.StoreServiceListModelsResponse, error) {
	revision, all, err := s.cfg.Backend.ListModels(ctx, req.GetRevision())
	if err != nil {
		return nil, s.refused(ctx, "list models", err)
	}
	return &meshv1.StoreServiceListModelsResponse{Revision: revision, Models: all}, nil
}

// ReadModel sends a file part by part, each read as it is sent.
func (s *Service) ReadModel(req *meshv1.StoreServiceReadModelRequest, stream grpc.ServerStreamingServer[meshv1.StoreServiceReadModelResponse]) error {
	ctx := stream.Context()
	m, err := s.cfg.Backend.GetModel(ctx, req.GetName(), req.GetVersion())
	if err != nil {
		return s.refused(ctx, "read model", err)
	}
	about := m
	for part := range (int(m.GetBytes()) + backend.ModelPart - 1) / backend.ModelPart {
		data, err := s.cfg.Backend.ReadModel(ctx, req.GetName(), req.GetVersion(), part)
		if err != nil {
			return s.refused(ctx, "read model", err)
		}
		if err := stream.Send(&meshv1.StoreServiceReadModelResponse{Model: about, Data: data}); err != nil {
			return err
		}
		about = nil
	}
	return nil
}

// DeleteModel deletes a version.
func (s *Service) DeleteModel(ctx context.Context, req *meshv1.StoreServiceDeleteModelRequest) (*meshv1.StoreServiceDeleteModelResponse, error) {
	if err := s.cfg.Backend.DeleteModel(ctx, req.GetName(), req.GetVersion()); err != nil {
		return nil, s.refused(ctx, "delete model", err)
	}
	return &meshv1.StoreServiceDeleteModelResponse{}, nil
}
