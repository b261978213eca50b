package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/harness"
)

// library is a model file of internal/trees, and what must come out of it.
func library(t *testing.T, name string) (file []byte, candidates []*pushmeshv1.Candidate, predicted [][]float64) {
	t.Helper()
	path := "../../internal/trees/testdata/libraries/" + name
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path + ".expected")
	if err != nil {
		t.Fatal(err)
	}
	var expected struct {
		Rows      [][]*float64
		Predicted [][]float64
	}
	if err := json.Unmarshal(text, &expected); err != nil {
		t.Fatal(err)
	}
	for i, row := range expected.Rows {
		c := &pushmeshv1.Candidate{Id: fmt.Sprint(i), Features: map[string]float64{}}
		for column, v := range row {
			if v != nil {
				c.Features[fmt.Sprintf("Column_%d", column)] = *v
			}
		}
		candidates = append(candidates, c)
	}
	return file, candidates, expected.Predicted
}

func putModel(t *testing.T, conn *grpc.ClientConn, name string, file []byte) (*pushmeshv1.Model, error) {
	t.Helper()
	stream, err := pushmeshv1.NewRankServiceClient(conn).PutModel(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&pushmeshv1.PutModelRequest{Name: name, Data: file}); err != nil {
		t.Fatal(err)
	}
	resp, err := stream.CloseAndRecv()
	return resp.GetModel(), err
}

// rankBy asks until the model is loaded.
func rankBy(t *testing.T, conn *grpc.ClientConn, candidates []*pushmeshv1.Candidate, scorer *pushmeshv1.ModelScorer) (*pushmeshv1.RankResponse, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		resp, err := pushmeshv1.NewRankServiceClient(conn).Rank(ctx, &pushmeshv1.RankRequest{Candidates: candidates, Model: scorer})
		if code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
			return resp, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// A model that was put ranks, version by version, and also on a compute node that is started later.
// A file that is refused is not kept.
func TestRankByAStoredModel(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{})
	conn := m.Router(t)
	file, candidates, predicted := library(t, "lightgbm-binary.txt")
	other, _, otherPredicted := library(t, "lightgbm-poisson.txt")
	ranks := func(what string, version, want uint64, predicted [][]float64) {
		t.Helper()
		resp, err := rankBy(t, conn, candidates, &pushmeshv1.ModelScorer{Name: "ctr", Version: version})
		if err != nil || resp.GetModelVersion() != want || len(resp.GetRanked()) != len(candidates) {
			t.Fatalf("%s: %v %v", what, resp, err)
		}
		last := math.Inf(1)
		for _, r := range resp.GetRanked() {
			if w := predicted[r.GetIndex()][0]; math.Abs(r.GetScore()-w) > 1e-9*math.Max(1, math.Abs(w)) || r.GetScore() > last {
				t.Errorf("%s: candidate %d: %v after %v, the library predicts %v", what, r.GetIndex(), r.GetScore(), last, w)
			}
			last = r.GetScore()
		}
	}
	if _, err := rankBy(t, conn, candidates, &pushmeshv1.ModelScorer{Name: "ctr"}); code.Of(err) != wirev1.Code_CODE_NOT_FOUND {
		t.Errorf("before it is put: %v", err)
	}
	if put, err := putModel(t, conn, "ctr", file); err != nil || put.GetVersion() != 1 {
		t.Fatal(put, err)
	}
	ranks("just put", 1, 1, predicted)
	if put, err := putModel(t, conn, "ctr", other); err != nil || put.GetVersion() != 2 {
		t.Fatal(put, err)
	}
	ranks("the second version", 2, 2, otherPredicted)
	ranks("the first version", 1, 1, predicted)
	ranks("the newest", 0, 2, otherPredicted)

	m.RestartCompute(t)
	ranks("after a restart, the first version", 1, 1, predicted)
	ranks("after a restart, the newest", 0, 2, otherPredicted)

	if put, err := putModel(t, conn, "ctr", file[:len(file)/2]); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
		t.Errorf("half a file: %v %v", put, err)
	}
	list, err := pushmeshv1.NewRankServiceClient(conn).ListModels(t.Context(), &pushmeshv1.ListModelsRequest{})
	if err != nil || len(list.GetModels()) != 2 {
		t.Error(list, err)
	}
}

// A namespace's policy gives a share of its calls to another version of its model, exactly, and
// goes back in one call.
func TestAModelIsRolledOut(t *testing.T) {
	m := harness.Start(t, harness.Options{})
	conn := m.Router(t)
	rank, namespaces := pushmeshv1.NewRankServiceClient(conn), pushmeshv1.NewNamespaceServiceClient(conn)
	_, candidates, _ := library(t, "lightgbm-binary.txt")
	for version, name := range []string{"lightgbm-binary.txt", "lightgbm-poisson.txt"} {
		file, _, _ := library(t, name)
		if put, err := putModel(t, conn, "ctr", file); err != nil || put.GetVersion() != uint64(version+1) {
			t.Fatal(put, err)
		}
	}
	if _, err := rankBy(t, conn, candidates, &pushmeshv1.ModelScorer{Name: "ctr", Version: 1}); err != nil {
		t.Fatal(err)
	}
	// The first call for a model that there is not says so, unless the machine stands still so long
	// that a store seems to be away.
	for i := 0; ; i++ {
		_, err := rank.Rank(t.Context(), &pushmeshv1.RankRequest{Candidates: candidates, Model: &pushmeshv1.ModelScorer{Name: fmt.Sprint("none-", i)}})
		if code.Of(err) == wirev1.Code_CODE_NOT_FOUND {
			break
		}
		if code.Of(err) != wirev1.Code_CODE_UNAVAILABLE || i == 20 {
			t.Fatal(err)
		}
	}
	put := func(model *pushmeshv1.ModelScorer) error {
		_, err := namespaces.Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{
			Namespace: &pushmeshv1.Namespace{Prefix: "news", Policy: &pushmeshv1.Policy{Rank: &pushmeshv1.RankPolicy{Model: model}}},
		})
		return err
	}
	if err := put(&pushmeshv1.ModelScorer{Name: "ctr", Version: 1, NextVersion: 3, NextShare: 0.25}); code.Of(err) != wirev1.Code_CODE_NOT_FOUND {
		t.Errorf("a next version that there is not: %v", err)
	}
	if err := put(&pushmeshv1.ModelScorer{Name: "ctr", Version: 1, NextVersion: 2, NextShare: 0.25, MaxSlowdown: 1000}); err != nil {
		t.Fatal(err)
	}
	again := 0 // calls that compute may have counted, and did not answer
	version := func() uint64 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ; ; again++ {
			resp, err := rank.Rank(ctx, &pushmeshv1.RankRequest{Candidates: candidates, Namespace: "news"})
			switch code.Of(err) {
			case wirev1.Code_CODE_OK:
				return resp.GetModelVersion()
			case wirev1.Code_CODE_NOT_FOUND, wirev1.Code_CODE_UNAVAILABLE:
				// the router does not know the policy, or compute stood still
				<-tick.C
			default:
				t.Fatal(err)
			}
		}
	}
	deadline := time.Now().Add(time.Minute)
	for version() != 2 { // until that version is loaded
		if time.Now().After(deadline) {
			t.Fatal("the next version gets no calls")
		}
	}
	by := map[uint64]int{}
	again = 0
	for range 40 {
		by[version()]++
	}
	if by[1]+by[2] != 40 || by[2] < 10-again || by[2] > 10+again {
		t.Errorf("a quarter of 40 calls is %v", by)
	}
	back, err := rank.RollBack(t.Context(), &pushmeshv1.RollBackRequest{Name: "ctr"})
	if err != nil || len(back.GetNamespaces()) != 1 || back.GetNamespaces()[0] != "news" {
		t.Fatal(back, err)
	}
	deadline = time.Now().Add(time.Minute)
	for of := 0; of < 8; { // eight one after the other, of which two would be the next version's
		if of++; version() != 1 {
			of = 0
		}
		if time.Now().After(deadline) {
			t.Fatal("still rolled out a minute after it was rolled back")
		}
	}
}
