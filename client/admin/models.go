package admin

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/pushmesh/pushmesh/client/internal/ext"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Model is one version of a stored model.
type Model struct {
	Name           string
	Version        uint64
	Format         ModelFormat
	Columns        []string
	Trees, Outputs uint32
	Bytes          uint64
	// Digest is the SHA-256 of the file.
	Digest    []byte
	CreatedAt time.Time
	Comment   string
	// UsedBy are the prefixes of the namespaces whose policy names it.
	UsedBy []string
}

// ModelFormat of a file.
type ModelFormat int32

// The formats; FormatTold is told from the file.
const (
	FormatTold          = ModelFormat(pushmeshv1.ModelFormat_MODEL_FORMAT_UNSPECIFIED)
	FormatLightGBM      = ModelFormat(pushmeshv1.ModelFormat_MODEL_FORMAT_LIGHTGBM_TEXT)
	FormatXGBoostBinary = ModelFormat(pushmeshv1.ModelFormat_MODEL_FORMAT_XGBOOST_BINARY)
	FormatXGBoostJSON   = ModelFormat(pushmeshv1.ModelFormat_MODEL_FORMAT_XGBOOST_JSON)
)

// Models are the versions of a name, the newest first; "": all names'.
func (c *Client) Models(ctx context.Context, name string) ([]Model, error) {
	r, err := ask(ctx, c.ranks.ListModels, &pushmeshv1.ListModelsRequest{Name: name})
	return mapped(r.GetModels(), modelOf), err
}

// NewModel describes a file that is to be stored.
type NewModel struct {
	// Name: 64 bytes of a-z, 0-9, - and _ at most.
	Name   string
	Format ModelFormat
	// Columns of the model in their order, where the file does not name them.
	Columns []string
	Comment string
}

// modelPart is how much of a file goes at a time.
const modelPart = 1 << 20

// PutModel keeps a file, 64 MiB at most, as the next version of its name.
func (c *Client) PutModel(ctx context.Context, m NewModel, file io.Reader) (Model, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.ranks.PutModel(ctx)
	if err != nil {
		return Model{}, ext.Fault(ctx, err)
	}
	part := &pushmeshv1.PutModelRequest{Name: m.Name, Format: pushmeshv1.ModelFormat(m.Format), Columns: m.Columns, Comment: m.Comment}
	buf := make([]byte, modelPart)
	for {
		n, err := io.ReadFull(file, buf)
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return Model{}, err
		}
		part.Data = buf[:n]
		// What was refused meanwhile is the answer's to say.
		if err := stream.Send(part); err != nil || last {
			break
		}
		part = &pushmeshv1.PutModelRequest{}
	}
	r, err := stream.CloseAndRecv()
	if err != nil {
		return Model{}, ext.Fault(ctx, err)
	}
	return modelOf(r.GetModel()), nil
}

// DeleteModel removes a version. CONFLICT: a policy names it.
func (c *Client) DeleteModel(ctx context.Context, name string, version uint64) error {
	_, err := change(ctx, c.ranks.DeleteModel, &pushmeshv1.DeleteModelRequest{Name: name, Version: version})
	return err
}

// RollBackModel has every namespace that gives a share of its calls to another version of the model
// go back to the version that it pins, and returns their prefixes.
func (c *Client) RollBackModel(ctx context.Context, name string) ([]string, error) {
	r, err := change(ctx, c.ranks.RollBack, &pushmeshv1.RollBackRequest{Name: name})
	return r.GetNamespaces(), err
}

func modelOf(m *pushmeshv1.Model) Model {
	return Model{
		Name: m.GetName(), Version: m.GetVersion(), Format: ModelFormat(m.GetFormat()), Columns: m.GetColumns(), Trees: m.GetTrees(), Outputs: m.GetOutputs(),
		Bytes: m.GetBytes(), Digest: m.GetDigest(), CreatedAt: stampOf(m.GetCreatedAt()), Comment: m.GetComment(), UsedBy: m.GetUsedBy(),
	}
}
