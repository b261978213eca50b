package router

import (
	"crypto/sha256"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func modelFile(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile("../../internal/trees/testdata/libraries/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// putModel sends a file in messages of so many bytes.
func putModel(t *testing.T, conn *grpc.ClientConn, first *pushmeshv1.PutModelRequest, file []byte, size int) (*pushmeshv1.Model, error) {
	t.Helper()
	stream, err := pushmeshv1.NewRankServiceClient(conn).PutModel(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(first); err == nil {
		for part := range slices.Chunk(file, size) {
			if err := stream.Send(&pushmeshv1.PutModelRequest{Data: part}); err != nil {
				break // CloseAndRecv says why
			}
		}
	}
	resp, err := stream.CloseAndRecv()
	return resp.GetModel(), err
}

func TestPutModel(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	file := modelFile(t, "xgboost-squared.model")
	columns := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	got, err := putModel(t, m.conn, &pushmeshv1.PutModelRequest{Name: "ctr", Columns: columns, Comment: "first"}, file, 1000)
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(file)
	if got.GetVersion() != 1 || got.GetFormat() != pushmeshv1.ModelFormat_MODEL_FORMAT_XGBOOST_BINARY || !slices.Equal(got.GetColumns(), columns) || got.GetTrees() == 0 ||
		got.GetOutputs() != 1 || got.GetBytes() != uint64(len(file)) || string(got.GetDigest()) != string(digest[:]) || got.GetComment() != "first" {
		t.Error(got)
	}
	text := modelFile(t, "lightgbm-multiclass.txt")
	first := &pushmeshv1.PutModelRequest{Name: "classes", Format: pushmeshv1.ModelFormat_MODEL_FORMAT_LIGHTGBM_TEXT}
	if got, err = putModel(t, m.conn, first, text, 1<<20); err != nil || got.GetOutputs() < 2 || len(got.GetColumns()) != 8 {
		t.Error(got, err)
	}
	list, err := pushmeshv1.NewRankServiceClient(m.conn).ListModels(t.Context(), &pushmeshv1.ListModelsRequest{Name: "ctr"})
	if err != nil || len(list.GetModels()) != 1 || list.GetModels()[0].GetName() != "ctr" {
		t.Error(list, err)
	}
}

func TestAModelThatIsRefusedIsNotKept(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	good := modelFile(t, "xgboost-squared.json")
	for what, c := range map[string]struct {
		first *pushmeshv1.PutModelRequest
		file  []byte
		size  int
		want  string
	}{
		"cut off":                  {&pushmeshv1.PutModelRequest{Name: "m"}, good[:len(good)/2], 1 << 20, "model: "},
		"no model":                 {&pushmeshv1.PutModelRequest{Name: "m"}, []byte(`{"learner":{}}`), 1 << 20, "model: "},
		"deep":                     {&pushmeshv1.PutModelRequest{Name: "m"}, []byte(strings.Repeat(`{"a":`, 1<<18)), 1 << 20, "model: "},
		"noise":                    {&pushmeshv1.PutModelRequest{Name: "m"}, []byte(strings.Repeat("\xff\x00\x07", 1<<16)), 1 << 20, "model: "},
		"empty":                    {&pushmeshv1.PutModelRequest{Name: "m"}, nil, 1, "empty"},
		"a bad name":               {&pushmeshv1.PutModelRequest{Name: "M/1"}, good, 1 << 20, "name"},
		"no name":                  {&pushmeshv1.PutModelRequest{}, good, 1 << 20, "name"},
		"a long comment":           {&pushmeshv1.PutModelRequest{Name: "m", Comment: strings.Repeat("x", 1025)}, good, 1 << 20, "comment"},
		"a large message":          {&pushmeshv1.PutModelRequest{Name: "m"}, make([]byte, 1<<20+1), 2 << 20, "1048576"},
		"another format":           {&pushmeshv1.PutModelRequest{Name: "m", Format: pushmeshv1.ModelFormat_MODEL_FORMAT_LIGHTGBM_TEXT}, good, 1 << 20, "XGBoost JSON"},
		"an unknown format":        {&pushmeshv1.PutModelRequest{Name: "m", Format: 99}, good, 1 << 20, "format 99"},
		"not as many as columns":   {&pushmeshv1.PutModelRequest{Name: "m", Columns: []string{"a"}}, good, 1 << 20, "1 names for 8 columns"},
		"more than a model may be": {&pushmeshv1.PutModelRequest{Name: "m"}, make([]byte, 64<<20+1), 1 << 20, "67108864"},
	} {
		if got, err := putModel(t, m.conn, c.first, c.file, c.size); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v %v", what, got, err)
		}
	}
	if _, err := putModel(t, m.conn, &pushmeshv1.PutModelRequest{Name: "m"}, []byte("bs64AAAA"), 1<<20); code.Of(err) != wirev1.Code_CODE_UNSUPPORTED {
		t.Error(err)
	}
	list, err := pushmeshv1.NewRankServiceClient(m.conn).ListModels(t.Context(), &pushmeshv1.ListModelsRequest{})
	if err != nil || len(list.GetModels()) != 0 {
		t.Error(list, err)
	}
}

func TestModelsThatPoliciesName(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	rank, namespaces := pushmeshv1.NewRankServiceClient(m.conn), pushmeshv1.NewNamespaceServiceClient(m.conn)
	for _, name := range []string{"lightgbm-stump.txt", "lightgbm-binary.txt", "lightgbm-poisson.txt"} {
		if _, err := putModel(t, m.conn, &pushmeshv1.PutModelRequest{Name: "ctr"}, modelFile(t, name), 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if _, err := putModel(t, m.conn, &pushmeshv1.PutModelRequest{Name: "other"}, modelFile(t, "lightgbm-stump.txt"), 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	for prefix, model := range map[string]*pushmeshv1.ModelScorer{
		"pinned": {Name: "ctr", Version: 1}, "rolling": {Name: "ctr", Version: 1, NextVersion: 2, NextShare: 0.5}, "newest": {Name: "ctr"},
		"other": {Name: "other", Version: 1, NextVersion: 2, NextShare: 0.5},
	} {
		_, err := namespaces.Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{
			Namespace: &pushmeshv1.Namespace{Prefix: prefix, Policy: &pushmeshv1.Policy{Rank: &pushmeshv1.RankPolicy{Model: model}}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	used := func() map[uint64][]string {
		list, err := rank.ListModels(t.Context(), &pushmeshv1.ListModelsRequest{Name: "ctr"})
		if err != nil {
			t.Fatal(err)
		}
		by := map[uint64][]string{}
		for _, m := range list.GetModels() {
			slices.Sort(m.GetUsedBy())
			by[m.GetVersion()] = m.GetUsedBy()
		}
		return by
	}
	if by := used(); !slices.Equal(by[1], []string{"pinned", "rolling"}) || !slices.Equal(by[2], []string{"rolling"}) || !slices.Equal(by[3], []string{"newest"}) {
		t.Error(by)
	}
	remove := func(version uint64) error {
		_, err := rank.DeleteModel(t.Context(), &pushmeshv1.DeleteModelRequest{Name: "ctr", Version: version})
		return err
	}
	for version := range uint64(3) {
		if err := remove(version + 1); code.Of(err) != wirev1.Code_CODE_CONFLICT {
			t.Errorf("version %d: %v", version+1, err)
		}
	}
	back, err := rank.RollBack(t.Context(), &pushmeshv1.RollBackRequest{Name: "ctr"})
	if err != nil || !slices.Equal(back.GetNamespaces(), []string{"rolling"}) {
		t.Error(back, err)
	}
	ns, err := namespaces.Get(t.Context(), &pushmeshv1.NamespaceServiceGetRequest{Prefix: "rolling"})
	if model := ns.GetNamespace().GetPolicy().GetRank().GetModel(); err != nil || model.GetVersion() != 1 || model.GetNextVersion() != 0 || model.GetNextShare() != 0 {
		t.Error(ns, err)
	}
	if back, err = rank.RollBack(t.Context(), &pushmeshv1.RollBackRequest{Name: "ctr"}); err != nil || len(back.GetNamespaces()) != 0 {
		t.Error(back, err)
	}
	if err := remove(2); err != nil {
		t.Error(err)
	}
	for version, want := range map[uint64]wirev1.Code{2: wirev1.Code_CODE_NOT_FOUND, 0: wirev1.Code_CODE_INVALID_ARGUMENT} {
		if err := remove(version); code.Of(err) != want {
			t.Errorf("version %d: %v, want %v", version, err, want)
		}
	}
}

func TestPoliciesNameModelsThatThereAre(t *testing.T) {
	m := startMesh(t, nil)
	namespaces := pushmeshv1.NewNamespaceServiceClient(m.conn)
	put := func(model *pushmeshv1.ModelScorer) error {
		_, err := namespaces.Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{
			Namespace: &pushmeshv1.Namespace{Prefix: "news", Policy: &pushmeshv1.Policy{Rank: &pushmeshv1.RankPolicy{Model: model}}},
		})
		return err
	}
	if err := put(&pushmeshv1.ModelScorer{Name: "ctr"}); code.Of(err) != wirev1.Code_CODE_NOT_FOUND || !strings.Contains(err.Error(), "no model ctr") {
		t.Error(err)
	}
	for _, name := range []string{"lightgbm-stump.txt", "lightgbm-binary.txt"} {
		if _, err := putModel(t, m.conn, &pushmeshv1.PutModelRequest{Name: "ctr"}, modelFile(t, name), 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		model *pushmeshv1.ModelScorer
		says  string
	}{
		{&pushmeshv1.ModelScorer{Name: "ctr"}, ""},
		{&pushmeshv1.ModelScorer{Name: "ctr", Version: 2}, ""},
		{&pushmeshv1.ModelScorer{Name: "ctr", Version: 1, NextVersion: 2, NextShare: 0.1}, ""},
		{&pushmeshv1.ModelScorer{Name: "ct"}, "no model ct"},
		{&pushmeshv1.ModelScorer{Name: "ctr", Version: 3}, "no model ctr, version 3"},
		{&pushmeshv1.ModelScorer{Name: "ctr", Version: 1, NextVersion: 3, NextShare: 0.1}, "version 3 (next_version)"},
	} {
		err := put(c.model)
		if c.says == "" && err != nil || c.says != "" && (code.Of(err) != wirev1.Code_CODE_NOT_FOUND || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%v: %v", c.model, err)
		}
	}
}
