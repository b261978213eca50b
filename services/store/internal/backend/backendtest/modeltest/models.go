// Package modeltest is the part of the suite of backends that is about models.
package modeltest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// patience is as long as backendtest.Patience.
const patience = 2 * time.Minute

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func need(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func closeNow(t *testing.T, c interface{ Close() error }) {
	t.Helper()
	need(t, c.Close())
}

// model describes a file of so many bytes, all of them b.
func model(name string, size int, b byte) (*pushmeshv1.Model, []byte) {
	file := bytes.Repeat([]byte{b}, size)
	digest := sha256.Sum256(file)
	return &pushmeshv1.Model{
		Name: name, Format: pushmeshv1.ModelFormat_MODEL_FORMAT_XGBOOST_JSON, Columns: []string{"age", "price"}, Trees: 3, Outputs: 2, Bytes: uint64(size),
		Digest: digest[:], CreatedAt: timestamppb.New(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)), Comment: "a comment",
	}, file
}

func putModel(t *testing.T, b backend.Backend, name string, size int, with byte) *pushmeshv1.Model {
	t.Helper()
	m, file := model(name, size, with)
	stored, err := b.PutModel(within(t), m, file)
	need(t, err)
	return stored
}

// Models is one of the suite.
func Models(t *testing.T, db func(t *testing.T) backend.Backend) {
	b := db(t)
	r0, none, err := b.ListModels(within(t), 0)
	need(t, err)
	if r0 == 0 || len(none) != 0 {
		t.Fatalf("revision %d: %v", r0, none)
	}
	const size = 2*backend.ModelPart + 5
	first, second, other := putModel(t, b, "m", size, 1), putModel(t, b, "m", 7, 2), putModel(t, b, "a", backend.ModelPart, 3)
	if first.GetVersion() != 1 || second.GetVersion() != 2 || other.GetVersion() != 1 {
		t.Fatalf("versions %d, %d, %d", first.GetVersion(), second.GetVersion(), other.GetVersion())
	}
	r1, _, err := b.ListModels(within(t), r0)
	need(t, err)
	again := putModel(t, b, "m", 7, 2)
	if diff := cmp.Diff(second, again, protocmp.Transform()); diff != "" {
		t.Errorf("the newest, put again: %s", diff)
	}
	closeNow(t, b)
	b = db(t)
	defer closeNow(t, b)
	r2, all, err := b.ListModels(within(t), r0)
	need(t, err)
	if diff := cmp.Diff([]*pushmeshv1.Model{other, second, first}, all, protocmp.Transform()); diff != "" || r2 != r1 || r1 <= r0 {
		t.Errorf("revisions %d, %d, %d: %s", r0, r1, r2, diff)
	}
	if r, none, err := b.ListModels(within(t), r2); err != nil || r != r2 || len(none) != 0 {
		t.Errorf("unchanged: %d %v %v", r, none, err)
	}
	var read []byte
	for part := range 3 {
		data, err := b.ReadModel(within(t), "m", 1, part)
		need(t, err)
		read = append(read, data...)
	}
	if !bytes.Equal(read, bytes.Repeat([]byte{1}, size)) {
		t.Errorf("%d bytes read, not those of the file", len(read))
	}
	if _, err := b.ReadModel(within(t), "m", 1, 3); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("a part after the last: %v", err)
	}
	older := putModel(t, b, "m", size, 1)
	if older.GetVersion() != 3 {
		t.Errorf("an older version's file becomes version %d", older.GetVersion())
	}
	renamed, file := model("m", size, 1)
	renamed.Columns = []string{"x", "y"}
	if stored, err := b.PutModel(within(t), renamed, file); err != nil || stored.GetVersion() != 4 {
		t.Errorf("the newest file with other columns: %v %v", stored, err)
	}
}

// ModelsDeleted is one of the suite.
func ModelsDeleted(t *testing.T, db func(t *testing.T) backend.Backend) {
	b := db(t)
	defer closeNow(t, b)
	putModel(t, b, "m", 10, 1)
	putModel(t, b, "m", 10, 2)
	before, _, err := b.ListModels(within(t), 0)
	need(t, err)
	need(t, b.DeleteModel(within(t), "m", 2))
	r, all, err := b.ListModels(within(t), before)
	need(t, err)
	if r <= before || len(all) != 1 || all[0].GetVersion() != 1 {
		t.Errorf("revision %d, was %d: %v", r, before, all)
	}
	for what, err := range map[string]error{
		"second delete":   b.DeleteModel(within(t), "m", 2),
		"of no such name": b.DeleteModel(within(t), "x", 1),
		"its description": func() error { _, err := b.GetModel(within(t), "m", 2); return err }(),
		"its file":        func() error { _, err := b.ReadModel(within(t), "m", 2, 0); return err }(),
	} {
		if !errors.Is(err, backend.ErrNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if same, _, err := b.ListModels(within(t), r); err != nil || same != r {
		t.Errorf("deletes of nothing change the revision: %d, was %d, %v", same, r, err)
	}
	if m := putModel(t, b, "m", 10, 2); m.GetVersion() != 3 {
		t.Errorf("version %d is used again", m.GetVersion())
	}
	need(t, b.DeleteModel(within(t), "m", 3))
	need(t, b.DeleteModel(within(t), "m", 1))
	if m := putModel(t, b, "m", 10, 2); m.GetVersion() != 4 {
		t.Errorf("version %d after all were deleted", m.GetVersion())
	}
}

// ModelBounds is one of the suite.
func ModelBounds(t *testing.T, db func(t *testing.T) backend.Backend) {
	b := db(t)
	defer closeNow(t, b)
	large, file := model("large", 10, 1)
	large.Columns = []string{strings.Repeat("x", backend.MaxDescribed)}
	before, _, err := b.ListModels(within(t), 0)
	need(t, err)
	if _, err := b.PutModel(within(t), large, file); !errors.Is(err, backend.ErrConflict) {
		t.Errorf("columns beyond the bound: %v", err)
	}
	if r, all, err := b.ListModels(within(t), 0); err != nil || r != before || len(all) != 0 {
		t.Errorf("what was refused left revision %d (was %d), %v, %v", r, before, all, err)
	}
	if m := putModel(t, b, "large", 10, 1); m.GetVersion() != 1 {
		t.Errorf("what was refused took a version: the next is %d", m.GetVersion())
	}
}

// ModelsTogether is one of the suite.
func ModelsTogether(t *testing.T, db func(t *testing.T) backend.Backend) {
	b := db(t)
	defer closeNow(t, b)
	const each = 5
	var all sync.WaitGroup
	for k := range byte(4) {
		all.Go(func() {
			for i := range byte(each) {
				m, file := model(fmt.Sprintf("m%d", k%2), 100, 10*k+i)
				if _, err := b.PutModel(within(t), m, file); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	_, found, err := b.ListModels(within(t), 0)
	need(t, err)
	if len(found) != 4*each {
		t.Fatalf("%d versions, want %d", len(found), 4*each)
	}
	for i, m := range found {
		if want := uint64(2*each - i%(2*each)); m.GetVersion() != want {
			t.Errorf("%d: %s version %d, want %d", i, m.GetName(), m.GetVersion(), want)
		}
	}
}
