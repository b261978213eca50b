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

// A model that was put ranks, version by version, and also on a compute node that is started later. A file that is refused is not kept.
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
