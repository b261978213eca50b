package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cli/ranking"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
)

// sample is a learning-to-rank set of three queries.
const sample = "../../../../services/compute/testdata/rank_sample"

// write puts text into a file of its own.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRank(t *testing.T) {
	t.Parallel()
	m := startMesh(t, t.TempDir())
	rank := func(in string, args ...string) string {
		t.Helper()
		return must(t, in, with(m.router, append([]string{"rank"}, args...)...)...)
	}

	// Each query of the sample on its own, as the file says: the best of each by one feature.
	text, err := os.ReadFile(sample + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	lines := strings.Split(string(text), "\n")
	for q, at := 0, 0; q < 3; q++ {
		best, bestScore := 0, -1.0
		for i := range []int{12, 19, 18}[q] {
			score := 0.0
			if _, rest, ok := strings.Cut(lines[at+i], " 32:"); ok {
				if score, err = strconv.ParseFloat(strings.Fields(rest)[0], 64); err != nil {
					t.Fatal(err)
				}
			}
			if score > bestScore {
				best, bestScore = at+i+1, score
			}
		}
		at += []int{12, 19, 18}[q]
		fmt.Fprintf(&want, "%d\t1\t%s\t%d\n", q+1, cmdline.ShortNumber(bestScore), best)
	}
	if out := rank("", sample+".txt", "--query", sample+".query", "--weights", "32=1", "--top", "1"); out != want.String() {
		t.Errorf("rank prints %q, want %q", out, want.String())
	}
	if out := rank("", sample+".txt", "--query", sample+".query", "--expression", `features["Column_32"]`, "--prefix", "Column_", "--top", "1"); out != want.String() {
		t.Errorf("rank by an expression prints %q, want %q", out, want.String())
	}

	items := `{"id": "a", "features": {"q": 1}, "vector": [1, 0], "topic": "t"}
{"id": "b", "features": {"q": 3}, "vector": [0, 2], "topic": "t"}
{"id": "c", "features": {"q": 2}, "headers": {"lang": "en"}, "priority": 4}
`
	request := write(t, "request.json", `{"weighted": {"bias": 1, "affinities": {"q": 2}}, "top_k": 2}`)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--weights", "q=2", "--explain"}, "1\t1\t6\tb\tq=6\n1\t2\t4\tc\tq=4\n1\t3\t2\ta\tq=2\n"},
		{[]string{"--weights", "q=2", "--diversify", "topic:1"}, "1\t1\t6\tb\n1\t2\t4\tc\n1\t3\t2\ta\n"},
		{[]string{"--weights", "q=-2", "--diversify", "topic:1"}, "1\t1\t-2\ta\n1\t2\t-4\tc\n1\t3\t-6\tb\n"},
		{[]string{"--expression", "features.q * profile.q", "--profile", "q=0.5", "--filter", "priority == 0"}, "1\t1\t1.5\tb\n1\t2\t0.5\ta\n"},
		{[]string{"--embedding", "dot", "--vector", "0.5,1"}, "1\t1\t2\tb\n1\t2\t0.5\ta\n1\t3\t0\tc\n"},
		{[]string{"--embedding", "cosine", "--vector", "0,3", "--top", "1"}, "1\t1\t1\tb\n"},
		{[]string{"--request", request, "--profile", "q=1", "--explain"}, "1\t1\t7\tb\tq=6 (constant)=1\n1\t2\t5\tc\tq=4 (constant)=1\n"},
	} {
		if out := rank(items, c.args...); out != c.want {
			t.Errorf("rank %q prints %q, want %q", c.args, out, c.want)
		}
	}
	var shown ranking.Ranked
	out := rank("\n3 qid:1 1:2\n0 qid:2 1:5\n", "--weights", "1=1.5", "--format", "json")
	if err := json.Unmarshal([]byte(strings.SplitAfter(out, "\n")[1]), &shown); err != nil || strings.Count(out, "\n") != 2 {
		t.Fatal(out, err)
	}
	if shown.Query != 2 || shown.Place != 1 || shown.Score != 7.5 || shown.Line != 3 || shown.ID != "3" || shown.Label != "0" {
		t.Errorf("%+v", shown)
	}

	for _, c := range []struct {
		in   string
		args []string
		says string
	}{
		{items, []string{"--expression", "features.q *"}, "INVALID_ARGUMENT"},
		{items, []string{"--expression", "1.0 / features.none"}, "candidate 0"},
		{items, []string{"--model", "nope"}, "NOT_FOUND"},
		{items, []string{"--namespace", "nowhere"}, "NOT_FOUND"},
		{items, []string{"--namespace", "room"}, "no rank policy"},
		{"1 2:3\n1 x\n", []string{"--weights", "2=1"}, "standard input: line 2"},
		{"1 2:3\n", []string{"--weights", "2=1", "--query", sample + ".query"}, "11 candidates of the last query are missing"},
	} {
		cmd := ran(t, c.in, with(m.router, append([]string{"rank"}, c.args...)...)...)
		if cmd.code != 1 || !strings.Contains(cmd.err.String(), c.says) {
			t.Errorf("%q: exit code %d, says %q; want %q", c.args, cmd.code, cmd.err.String(), c.says)
		}
	}

	// By a policy, once it has reached the router.
	policy := write(t, "rank.json", `{"expression": {"expression": "features.q + 1.0"}, "filter": "features.q > 1", "max_candidates": 50}`)
	put := must(t, "", with(m.router, "namespace", "put", "news", "--rank", policy, "--format", "json")...)
	if !strings.Contains(put, `"max_candidates":50`) {
		t.Errorf("put prints %s", put)
	}
	said(t, `"rank":{`, with(m.router, "namespace", "get", "news", "--format", "json")...)
	file := write(t, "items.jsonl", items)
	said(t, "1\t1\t4\tb\n1\t2\t3\tc\n", with(m.router, "rank", file, "--namespace", "news")...)
}
