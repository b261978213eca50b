package cli

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cli/ranking"
)

// libraryModel is a file that LightGBM or XGBoost wrote.
func libraryModel(name string) string { return "../../../../internal/trees/testdata/libraries/" + name }

// A model is put, listed, used, rolled out, rolled back and deleted; what is refused says why.
func TestModels(t *testing.T) {
	t.Parallel()
	m := startMesh(t, t.TempDir())
	model := func(args ...string) string {
		t.Helper()
		return must(t, "", with(m.router, append([]string{"model"}, args...)...)...)
	}
	var shown ranking.ModelVersion
	out := model("put", "ctr", libraryModel("xgboost-squared.json"), "--columns", "a,b,c,d,e,f,g,h", "--comment", "the\nfirst", "--file-format", "xgboost-json", "--format", "json")
	if err := json.Unmarshal([]byte(out), &shown); err != nil {
		t.Fatal(out, err)
	}
	file, err := os.ReadFile(libraryModel("xgboost-squared.json"))
	if err != nil {
		t.Fatal(err)
	}
	if shown.Name != "ctr" || shown.Version != 1 || shown.Format != "xgboost-json" || len(shown.Columns) != 8 || shown.Columns[7] != "h" || shown.Trees == 0 || shown.Outputs != 1 ||
		shown.Bytes != uint64(len(file)) || len(shown.SHA256) != 64 || shown.Comment != "the\nfirst" || !strings.HasSuffix(shown.CreatedAt, "Z") {
		t.Errorf("%+v", shown)
	}
	if out := model("put", "ctr", libraryModel("lightgbm-binary.txt")); !strings.Contains(out, "ctr@2") || !strings.Contains(out, "lightgbm") {
		t.Errorf("put prints %s", out)
	}
	if again := model("put", "ctr", libraryModel("lightgbm-binary.txt")); !strings.Contains(again, "ctr@2") {
		t.Errorf("put again prints %s", again)
	}
	model("put", "other", libraryModel("lightgbm-stump.txt"))

	policy := write(t, "rank.json", `{"model": {"name": "ctr", "version": 1, "next_version": 2, "next_share": 0.25}}`)
	must(t, "", with(m.router, "namespace", "put", "news", "--rank", policy)...)
	lines := strings.Split(model("list"), "\n")
	for i, want := range []string{"MODEL FORMAT COLUMNS TREES OUTPUTS BYTES CREATED USED BY COMMENT", "ctr@2 lightgbm 8 ", "ctr@1 xgboost-json 8 ", "other@1 lightgbm "} {
		if got := strings.Join(strings.Fields(lines[i]), " "); !strings.HasPrefix(got, want) {
			t.Errorf("line %d of list is %q, want %q", i, got, want)
		}
	}
	if !strings.Contains(lines[2], "news") || !strings.HasSuffix(lines[2], "the first") {
		t.Errorf("list says %q", lines[2])
	}
	if out := model("list", "other", "--format", "json"); strings.Count(out, "\n") != 1 || !strings.Contains(out, `"name":"other"`) {
		t.Errorf("list of one name prints %s", out)
	}
	if out := model("list", "none", "--format", "json"); out != "" {
		t.Errorf("list of no name prints %s", out)
	}

	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"put", "Ctr!", libraryModel("lightgbm-stump.txt")}, "INVALID_ARGUMENT"},
		{[]string{"put", "ctr", libraryModel("lightgbm-stump.txt"), "--file-format", "xgboost-json"}, "the file is LightGBM"},
		{[]string{"put", "ctr", write(t, "empty", "")}, "the file is empty"},
		{[]string{"put", "ctr", write(t, "noise", "noise")}, "INVALID_ARGUMENT"},
		{[]string{"put", "ctr", write(t, "model.ubj", "{L\x00\x00\x00\x00\x00\x00\x00\x07learner{")}, "have XGBoost save the model as .json"},
		{[]string{"delete", "ctr@2"}, "CONFLICT"},
		{[]string{"delete", "ctr@7"}, "NOT_FOUND"},
		{[]string{"rollback", "No!"}, "INVALID_ARGUMENT"},
	} {
		cmd := ran(t, "", with(m.router, slices.Concat([]string{"model"}, c.args)...)...)
		if cmd.code != 1 || !strings.Contains(cmd.err.String(), c.says) {
			t.Errorf("model %q: exit code %d, says %q; want %q", c.args, cmd.code, cmd.err.String(), c.says)
		}
	}

	if out := model("rollback", "ctr"); out != "news\n" {
		t.Errorf("rollback prints %q", out)
	}
	if out := model("rollback", "ctr"); out != "" {
		t.Errorf("rollback once more prints %q", out)
	}
	model("delete", "ctr@2")
	if out := model("list", "ctr"); strings.Contains(out, "ctr@2") {
		t.Errorf("what was deleted is listed: %s", out)
	}
	in := "1 a:2\n0 b:1\n"
	said(t, "1\t1\t", with(m.router, "rank", write(t, "docs.txt", strings.ReplaceAll(strings.ReplaceAll(in, "a:", "1:"), "b:", "2:")), "--model", "ctr@1")...)
}
