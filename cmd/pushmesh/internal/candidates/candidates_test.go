package candidates

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
)

func all(t *testing.T, text string, cfg Config) (lines []*Line, err error) {
	t.Helper()
	r := NewReader(strings.NewReader(text), cfg)
	for {
		l, err := r.Next()
		if errors.Is(err, io.EOF) {
			return lines, nil
		}
		if err != nil {
			return lines, err
		}
		lines = append(lines, l)
	}
}

func TestLibSVM(t *testing.T) {
	lines, err := all(t, "# a comment\n\n2 qid:7 1:0.5 12:-3e2 # more\n1:4\n0\r\n", Config{Prefix: "Column_"})
	if err != nil || len(lines) != 3 {
		t.Fatal(lines, err)
	}
	if l := lines[0]; l.Label != "2" || l.Query != "7" || l.Id != "3" || l.Number != 3 || len(l.Features) != 2 || l.Features["Column_12"] != -300 {
		t.Errorf("%+v", l)
	}
	if l := lines[1]; l.Label != "" || l.Features["Column_1"] != 4 || l.Id != "4" {
		t.Errorf("%+v", l)
	}
	if l := lines[2]; l.Label != "0" || len(l.Features) != 0 {
		t.Errorf("%+v", l)
	}
}

func TestJSON(t *testing.T) {
	lines, err := all(t, `{"id": "a", "features": {"x": 1.5}, "headers": {"k": "v"}, "priority": 3, "published_at": "2026-05-01T12:00:00Z", "vector": [1, 2], "topic": "t"}`+"\n\n"+`{"publishedAt": "2026-05-01T12:00:00Z"}`, Config{})
	if err != nil || len(lines) != 2 {
		t.Fatal(lines, err)
	}
	l := lines[0]
	if l.Id != "a" || l.Features["x"] != 1.5 || l.Headers["k"] != "v" || l.Priority != 3 || l.PublishedAt.AsTime().Hour() != 12 || !slices.Equal(l.Vector, []float32{1, 2}) || l.Topic != "t" {
		t.Errorf("%+v", l)
	}
	if lines[1].Id != "3" || lines[1].PublishedAt == nil {
		t.Errorf("%+v", lines[1])
	}
}

func TestFaultsNameTheLine(t *testing.T) {
	for text, want := range map[string]string{
		"1 2:3\nx 1:2\n":                      `f.txt: line 2: "x" is neither a label`,
		"1 a:3\n":                             `f.txt: line 1: "a:3" is not INDEX:VALUE`,
		"1 2\n":                               `f.txt: line 1: "2" is not INDEX:VALUE`,
		"1 2:y\n":                             `f.txt: line 1: "2:y" is not INDEX:VALUE`,
		"1 2:1 2:1\n":                         "f.txt: line 1: feature 2 is given twice",
		"{}\n{\"nope\": 1}\n":                 `f.txt: line 2: not a candidate`,
		"{}\n1 2:3\n":                         "f.txt: line 2: not a candidate",
		"{}\n{\"priority\": -1}":              "f.txt: line 2: not a candidate",
		"1\n" + strings.Repeat("1 ", maxLine): "f.txt: line 2: more than",
	} {
		if _, err := all(t, text, Config{Name: "f.txt"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
	if _, err := Sizes(strings.NewReader("3\n\n0\n"), "q"); err == nil || !strings.Contains(err.Error(), `q: line 3: "0"`) {
		t.Error(err)
	}
}

// Queries are cut by a file of sizes, by qid, or not at all.
func TestQueries(t *testing.T) {
	r := NewReader(strings.NewReader("1 qid:1 1:1\n1 qid:1 1:1\n1 qid:2 1:1\n1 qid:1 1:1\n"), Config{})
	for _, want := range []int{2, 1, 1} {
		if q, err := r.Query(); err != nil || len(q) != want {
			t.Fatalf("%d candidates, %v, want %d", len(q), err, want)
		}
	}
	if _, err := r.Query(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	r = NewReader(strings.NewReader("1\n1\n1\n"), Config{Name: "f"})
	if q, err := r.Some(2); err != nil || len(q) != 2 {
		t.Fatal(q, err)
	}
	if _, err := r.Some(2); err == nil || !strings.Contains(err.Error(), "f: 1 candidates of the last query are missing") {
		t.Fatal(err)
	}
}

// A real set: three queries of 12, 19 and 18 documents.
func TestSample(t *testing.T) {
	const folder = "../../../../services/compute/testdata/"
	sizesFile, err := os.Open(folder + "rank_sample.query")
	if err != nil {
		t.Fatal(err)
	}
	defer sizesFile.Close()
	file, err := os.Open(folder + "rank_sample.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	sizes, err := Sizes(sizesFile, "sizes")
	if err != nil || !slices.Equal(sizes, []int{12, 19, 18}) {
		t.Fatal(sizes, err)
	}
	r := NewReader(file, Config{Name: "sample"})
	for _, n := range sizes {
		q, err := r.Some(n)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range q {
			if l.Label == "" || len(l.Features) < 20 {
				t.Fatalf("line %d: label %q, %d features", l.Number, l.Label, len(l.Features))
			}
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
}
