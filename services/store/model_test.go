package store

import (
	"bytes"
	"crypto/sha256"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/storeclient"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// described is a model of that file.
func described(name string, file []byte) *pushmeshv1.Model {
	digest := sha256.Sum256(file)
	return &pushmeshv1.Model{Name: name, Columns: []string{"a"}, Bytes: uint64(len(file)), Digest: digest[:]}
}

func TestModelsThroughAClient(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	st, _ := standalone(t, path)
	client := storeclient.New(storeclient.Config{Seeds: []string{st.Addr()}})
	need(t, client.Start(t.Context()))
	t.Cleanup(func() { need(t, client.Stop(within(t))) })
	eventually(t, "the store is known", func() bool { return client.Check() == nil })

	file := make([]byte, 5<<20+7)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(file)
	put, err := client.PutModel(within(t), described("ctr", file), file)
	need(t, err)
	if put.GetVersion() != 1 || put.GetCreatedAt() == nil || put.GetBytes() != uint64(len(file)) {
		t.Errorf("put: %v", put)
	}
	again, err := client.PutModel(within(t), described("ctr", file), file)
	if err != nil || again.GetVersion() != 1 {
		t.Errorf("put again: %v %v", again, err)
	}
	about, read, err := client.ReadModel(within(t), "ctr", 1)
	if err != nil || !bytes.Equal(read, file) || about.GetColumns()[0] != "a" {
		t.Errorf("read %d bytes of %d, %v, %v", len(read), len(file), about, err)
	}
	list, err := client.ListModels(within(t), &meshv1.StoreServiceListModelsRequest{})
	if err != nil || len(list.GetModels()) != 1 {
		t.Errorf("list: %v %v", list, err)
	}

	for what, m := range map[string]*pushmeshv1.Model{
		"another digest": {Name: "bad", Bytes: uint64(len(file)), Digest: make([]byte, 32)},
		"too few bytes":  {Name: "bad", Bytes: uint64(len(file)) - 1, Digest: described("bad", file).GetDigest()},
		"no name":        described("", file),
		"too many bytes": {Name: "bad", Bytes: 64<<20 + 1, Digest: described("bad", file).GetDigest()},
	} {
		if got, err := client.PutModel(within(t), m, file); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
			t.Errorf("%s: %v %v", what, got, err)
		}
	}
	same, err := client.ListModels(within(t), &meshv1.StoreServiceListModelsRequest{Revision: list.GetRevision()})
	if err != nil || same.GetRevision() != list.GetRevision() || len(same.GetModels()) != 0 {
		t.Errorf("after refusals: %v %v", same, err)
	}
	need(t, client.DeleteModel(within(t), "ctr", 1))
	if _, _, err := client.ReadModel(within(t), "ctr", 1); code.Of(err) != wirev1.Code_CODE_NOT_FOUND {
		t.Errorf("read after the delete: %v", err)
	}
	if err := client.DeleteModel(within(t), "ctr", 1); code.Of(err) != wirev1.Code_CODE_NOT_FOUND {
		t.Errorf("second delete: %v", err)
	}
}
