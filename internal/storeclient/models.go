package storeclient

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const (
	// maxModel is the most bytes of a model file.
	maxModel = 64 << 20
	// modelPart of a file is in one message.
	modelPart = 1 << 20
)

// PutModel has any store keep a file; m is what describes it, without version and created_at.
func (c *Client) PutModel(ctx context.Context, m *pushmeshv1.Model, file []byte) (*pushmeshv1.Model, error) {
	ctx, cancel := context.WithCancel(ctx) // ends the stream where it is given up
	defer cancel()
	return onAny(c, func(stub meshv1.StoreServiceClient) (*pushmeshv1.Model, error) {
		stream, err := stub.PutModel(ctx)
		if err != nil {
			return nil, err
		}
		first := m
		for part := range slices.Chunk(file, modelPart) {
			if err := stream.Send(&meshv1.StoreServicePutModelRequest{Model: first, Data: part}); err != nil {
				break // CloseAndRecv says why
			}
			first = nil
		}
		resp, err := stream.CloseAndRecv()
		return resp.GetModel(), err
	})
}

// ListModels asks any store.
func (c *Client) ListModels(ctx context.Context, req *meshv1.StoreServiceListModelsRequest) (*meshv1.StoreServiceListModelsResponse, error) {
	return onAny(c, func(stub meshv1.StoreServiceClient) (*meshv1.StoreServiceListModelsResponse, error) {
		return stub.ListModels(ctx, req)
	})
}

// ReadModel reads a version from any store, whole and as it was put: INTERNAL where its digest is
// another one.
func (c *Client) ReadModel(ctx context.Context, name string, version uint64) (*pushmeshv1.Model, []byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var file []byte
	m, err := onAny(c, func(stub meshv1.StoreServiceClient) (m *pushmeshv1.Model, err error) {
		stream, err := stub.ReadModel(ctx, &meshv1.StoreServiceReadModelRequest{Name: name, Version: version})
		if err != nil {
			return nil, err
		}
		for {
			part, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return m, nil
			}
			if err != nil {
				return nil, err
			}
			if m == nil {
				m = part.GetModel()
				file = make([]byte, 0, min(m.GetBytes(), maxModel))
			}
			if len(file)+len(part.GetData()) > maxModel {
				return nil, code.New(wirev1.Code_CODE_INTERNAL, fmt.Sprintf("model %s, version %d: more than %d bytes", name, version, maxModel))
			}
			file = append(file, part.GetData()...)
		}
	})
	if err != nil {
		return nil, nil, err
	}
	if sum := sha256.Sum256(file); !bytes.Equal(sum[:], m.GetDigest()) {
		return nil, nil, code.New(wirev1.Code_CODE_INTERNAL, fmt.Sprintf("model %s, version %d: its %d bytes are not those that were put", name, version, len(file)))
	}
	return m, file, nil
}

// DeleteModel asks any store.
func (c *Client) DeleteModel(ctx context.Context, name string, version uint64) error {
	_, err := onAny(c, func(stub meshv1.StoreServiceClient) (*meshv1.StoreServiceDeleteModelResponse, error) {
		return stub.DeleteModel(ctx, &meshv1.StoreServiceDeleteModelRequest{Name: name, Version: version})
	})
	return err
}
