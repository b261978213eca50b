package api

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/trees"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/audit"
)

const (
	// maxModel is the most bytes of a model file, maxModelPart of what one message has of it.
	maxModel     = 64 << 20
	maxModelPart = 1 << 20
	// maxModelComment is the most bytes of a comment.
	maxModelComment = 1024
	// modelsAtOnce are received, parsed and stored, each with its file in memory; modelsWaiting
	// more wait, for modelWait at most.
	modelsAtOnce  = 2
	modelsWaiting = 8
	modelWait     = 10 * time.Second
	// modelTime is how long a client has to send a file.
	modelTime = 2 * time.Minute
)

// modelTurns lets few files in at a time. It is safe for concurrent use.
type modelTurns struct {
	taken   chan struct{}
	waiting atomic.Int32
	wait    time.Duration
}

func newModelTurns() *modelTurns {
	return &modelTurns{taken: make(chan struct{}, modelsAtOnce), wait: modelWait}
}

// take waits for a turn, which leave ends.
func (t *modelTurns) take(ctx context.Context) (leave func(), err error) {
	refused := code.Retry(wirev1.Code_CODE_OVERLOADED, t.wait, "other models are being put")
	defer t.waiting.Add(-1)
	if t.waiting.Add(1) > modelsWaiting {
		return nil, refused
	}
	timer := time.NewTimer(t.wait)
	defer timer.Stop()
	select {
	case t.taken <- struct{}{}:
		return func() { <-t.taken }, nil
	case <-timer.C:
		return nil, refused
	case <-ctx.Done():
		return nil, code.From(ctx.Err())
	}
}

type modelStream = grpc.ClientStreamingServer[pushmeshv1.PutModelRequest, pushmeshv1.PutModelResponse]

// PutModel implements RankService: what can't be parsed is not stored.
func (r *Rank) PutModel(stream modelStream) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if err := checkModel(first); err != nil {
		return err
	}
	leave, err := r.turns.take(stream.Context())
	if err != nil {
		return err
	}
	defer leave()
	file, err := received(stream, first, modelTime)
	if err != nil {
		return err
	}
	parsed, err := parsed(file, first)
	if err != nil {
		return err
	}
	r.tellNewest(stream.Context(), first.GetName())
	digest := sha256.Sum256(file)
	stored, err := r.models.PutModel(stream.Context(), &pushmeshv1.Model{
		Name: first.GetName(), Format: formatOf(parsed), Columns: parsed.Columns(), Trees: uint32(parsed.Trees()), Outputs: uint32(parsed.Outputs()),
		Bytes: uint64(len(file)), Digest: digest[:], Comment: first.GetComment(),
	}, file)
	if err != nil {
		return code.From(err)
	}
	audit.After(stream.Context(), stored)
	return stream.SendAndClose(&pushmeshv1.PutModelResponse{Model: stored})
}

// tellNewest tells the audit of the version that is the newest one before another is put.
func (r *Rank) tellNewest(ctx context.Context, name string) {
	if !audit.Asked(ctx) {
		return
	}
	once, cancel := context.WithTimeout(ctx, readBefore)
	defer cancel()
	all, err := r.models.ListModels(once, &meshv1.StoreServiceListModelsRequest{})
	if err != nil {
		audit.Before(ctx, err)
		return
	}
	audit.Before(ctx, nil)
	for _, m := range all.GetModels() { // newest version first
		if m.GetName() == name {
			audit.Before(ctx, m)
			return
		}
	}
}

// checkModel checks what the first message says.
func checkModel(first *pushmeshv1.PutModelRequest) error {
	if err := trees.CheckName(first.GetName()); err != nil {
		return err
	}
	if len(first.GetComment()) > maxModelComment {
		return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, fmt.Sprintf("a comment has at most %d bytes", maxModelComment))
	}
	if _, known := pushmeshv1.ModelFormat_name[int32(first.GetFormat())]; !known {
		return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, fmt.Sprintf("format %d is not known", first.GetFormat()))
	}
	return nil
}

// received is the file of a stream, whole. Whoever takes longer than patience to send it is
// EXPIRED: the end of the call ends the goroutine.
func received(stream modelStream, first *pushmeshv1.PutModelRequest, patience time.Duration) ([]byte, error) {
	type result struct {
		file []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		file, err := receive(stream, first)
		done <- result{file, err}
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case r := <-done:
		return r.file, r.err
	case <-timer.C:
		return nil, code.New(wirev1.Code_CODE_EXPIRED, fmt.Sprintf("the file took longer than %s", patience))
	}
}

func receive(stream modelStream, req *pushmeshv1.PutModelRequest) (file []byte, err error) {
	for {
		switch {
		case len(req.GetData()) > maxModelPart:
			return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, fmt.Sprintf("a message has at most %d bytes of the file", maxModelPart))
		case len(file)+len(req.GetData()) > maxModel:
			return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, fmt.Sprintf("a model has at most %d bytes", maxModel))
		}
		file = append(file, req.GetData()...)
		if req, err = stream.Recv(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
	}
	if len(file) == 0 {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "the file is empty")
	}
	return file, nil
}

// parsed is the model of a file. A parser that panics is a fault of this program, and shall not end
// the router.
func parsed(file []byte, first *pushmeshv1.PutModelRequest) (m *trees.Model, err error) {
	defer func() {
		if r := recover(); r != nil {
			m, err = nil, code.New(wirev1.Code_CODE_INTERNAL, fmt.Sprintf("the parser panicked: %v", r))
		}
	}()
	if m, err = trees.ParseNamed(file, first.GetColumns(), trees.Limits{}); err != nil {
		return nil, err
	}
	if want := first.GetFormat(); want != pushmeshv1.ModelFormat_MODEL_FORMAT_UNSPECIFIED && want != formatOf(m) {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, fmt.Sprintf("the file is %s", m.Format()))
	}
	return m, nil
}

func formatOf(m *trees.Model) pushmeshv1.ModelFormat {
	switch m.Format() {
	case trees.LightGBMText:
		return pushmeshv1.ModelFormat_MODEL_FORMAT_LIGHTGBM_TEXT
	case trees.XGBoostBinary:
		return pushmeshv1.ModelFormat_MODEL_FORMAT_XGBOOST_BINARY
	case trees.XGBoostJSON:
		return pushmeshv1.ModelFormat_MODEL_FORMAT_XGBOOST_JSON
	}
	return pushmeshv1.ModelFormat_MODEL_FORMAT_UNSPECIFIED
}
