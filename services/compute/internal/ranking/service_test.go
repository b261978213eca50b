package ranking

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/cpupool"
	"github.com/pushmesh/pushmesh/internal/leaks"
	"github.com/pushmesh/pushmesh/internal/trees"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

// patience bounds every wait of these tests; nothing comes near it.
const patience = time.Minute

// library has versions of the model ctr, or what is wrong with them.
type library struct {
	mu      sync.Mutex
	models  map[uint64]*trees.Model
	wrong   map[uint64]error
	changed chan struct{} // closed when a version comes that was not there
}

func newLibrary() *library {
	return &library{models: map[uint64]*trees.Model{}, wrong: map[uint64]error{}, changed: make(chan struct{})}
}

func (l *library) Model(_ string, version uint64) (*trees.Model, uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m := l.models[version]; m != nil {
		return m, version, nil
	}
	if err := l.wrong[version]; err != nil {
		return nil, 0, err
	}
	return nil, 0, code.New(wirev1.Code_CODE_NOT_FOUND, fmt.Sprintf("there is no version %d", version))
}

func (l *library) Wait(ctx context.Context, name string, version uint64) error {
	for {
		l.mu.Lock()
		changed := l.changed
		l.mu.Unlock()
		_, _, err := l.Model(name, version)
		if code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return err
		}
	}
}

// set a version to what a file has.
func (l *library) set(t *testing.T, version uint64, file string) {
	t.Helper()
	m, err := trees.Parse([]byte(file), trees.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.models[version] = m
	close(l.changed)
	l.changed = make(chan struct{})
}

var loading = code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Millisecond, "it is being loaded")

// lightGBM is a model of so many trees over 8 columns, each with two leaves that have the same
// value.
func lightGBM(objective string, n int, leaf float64) string {
	var s strings.Builder
	fmt.Fprintf(&s, "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nmax_feature_idx=7\nobjective=%s\nfeature_names=a b c d e f g h\n"+
		"feature_infos=%s\n\n", objective, strings.TrimSuffix(strings.Repeat("[-9:9] ", 8), " "))
	for i := range n {
		fmt.Fprintf(&s, "Tree=%d\nnum_leaves=2\nnum_cat=0\nsplit_feature=%d\nsplit_gain=1\nthreshold=0.5\ndecision_type=2\nleft_child=-1\nright_child=-2\nleaf_value=%g %g\n"+
			"leaf_weight=1 1\nleaf_count=1 1\ninternal_value=0\ninternal_weight=1\ninternal_count=2\nis_linear=0\nshrinkage=1\n\n\n", i, i%8, leaf, leaf)
	}
	s.WriteString("end of trees\n")
	return s.String()
}

// node is a service on a pool.
type node struct {
	*Service
	pool     *cpupool.Pool
	registry *prometheus.Registry
	log      *logged
}

// logged is written by the service and read by a test.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func startNode(t *testing.T, models Models) *node {
	t.Helper()
	n := &node{registry: prometheus.NewRegistry(), log: &logged{}}
	n.pool = cpupool.New(cpupool.Config{
		Workers: 2, Queue: [cpupool.Lanes]int{cpupool.Short: 64, cpupool.Long: 64}, MaxCost: 10_000_000, ShortCost: 20_000,
		// no worker here hangs for ever, but one may be slow: the race detector has a hostile text
		// take a second
		Stall: patience,
	})
	if err := n.pool.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := n.pool.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	n.Service = New(Config{Pool: n.pool, Models: models, Log: slog.New(slog.NewTextHandler(n.log, nil)), Registry: n.registry})
	return n
}

// frozen roll-outs, as the metric says.
func (n *node) frozen(t *testing.T) int {
	t.Helper()
	all, err := n.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if m.GetName() == "pushmesh_compute_rollouts_frozen" {
			return int(m.GetMetric()[0].GetGauge().GetValue())
		}
	}
	t.Fatal("no metric")
	return 0
}

func (n *node) answered(version string) int {
	return int(testutil.ToFloat64(n.rollouts.calls.WithLabelValues(version)))
}

// rank has some candidates ranked by the model, for a namespace.
func (n *node) rank(t *testing.T, namespace string, m *pushmeshv1.ModelScorer, change func(*meshv1.RankJobRequest)) (*pushmeshv1.RankResponse, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	job := &meshv1.RankJobRequest{Rank: &pushmeshv1.RankRequest{Namespace: namespace, Model: m}}
	for i := range 4 {
		job.Rank.Candidates = append(job.Rank.Candidates, &pushmeshv1.Candidate{Id: fmt.Sprint(i), Features: map[string]float64{"a": float64(i)}})
	}
	if change != nil {
		change(job)
	}
	resp, err := n.RankJob(ctx, job)
	if err == nil && len(resp.GetRank().GetRanked()) != len(job.GetRank().GetCandidates()) {
		t.Errorf("%d of %d candidates", len(resp.GetRank().GetRanked()), len(job.GetRank().GetCandidates()))
	}
	return resp.GetRank(), err
}
