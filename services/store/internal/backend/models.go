package backend

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Bounds of what is stored of models, all versions together.
const (
	// ModelPart is the size of a part of a file but the last.
	ModelPart = 1 << 20
	// MaxModels versions.
	MaxModels = 1000
	// MaxModelNames, also of names of which no version is left: a version is never used twice.
	MaxModelNames = 10_000
	// MaxDescribed bytes of all versions as they are listed, most of them columns' names: a list
	// fits into one gRPC message.
	MaxDescribed = 3 << 20
)

// Models are files, versioned by name, and the revision of the whole set, which grows with every
// change.
type Models interface {
	// PutModel keeps a file as the next version of its name: the highest that there ever was, and
	// 1. m is what describes it, without version; what is stored is answered. A file that is the
	// newest version's, with the same columns, answers with that one and changes nothing.
	// ErrConflict beyond a bound.
	PutModel(ctx context.Context, m *pushmeshv1.Model, file []byte) (*pushmeshv1.Model, error)
	// ListModels ordered by name, newest version first. have equal to the revision answers the
	// revision alone.
	ListModels(ctx context.Context, have uint64) (revision uint64, all []*pushmeshv1.Model, err error)
	// GetModel describes one; ErrNotFound.
	GetModel(ctx context.Context, name string, version uint64) (*pushmeshv1.Model, error)
	// ReadModel is a part of its file, from 0; ErrNotFound.
	ReadModel(ctx context.Context, name string, version uint64, part int) ([]byte, error)
	// DeleteModel with its file; ErrNotFound.
	DeleteModel(ctx context.Context, name string, version uint64) error
}

// SameModel reports whether a file that is put is one that is stored.
func SameModel(put, stored *pushmeshv1.Model) bool {
	return bytes.Equal(put.GetDigest(), stored.GetDigest()) && slices.Equal(put.GetColumns(), stored.GetColumns())
}

// RoomForModel is ErrConflict where one more would be beyond a bound: there are so many versions,
// which take described bytes with the new one, and names.
func RoomForModel(versions, described, names int) error {
	switch {
	case versions >= MaxModels:
		return fmt.Errorf("%w: there are %d versions of models, delete some", ErrConflict, versions)
	case described > MaxDescribed:
		return fmt.Errorf("%w: the columns of all models take more than %d bytes, delete some", ErrConflict, MaxDescribed)
	case names > MaxModelNames:
		return fmt.Errorf("%w: there were %d names of models already", ErrConflict, MaxModelNames)
	}
	return nil
}
