package replay

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"
)

const chat = `{"room":"a","at":"09:14","kind":"say","user":"ann","text":"hi"}
{"room":"a","at":"09:14","kind":"join","user":"bob"}

{"room":"b","at":"10:00","kind":"leave","user":"ann"}
{"room":"a","at":"09:15","kind":"say","user":"ann","text":"there"}
{"room":"b","at":"10:01","kind":"say","user":"cyd","text":"yo"}
{"room":"a","at":"09:15","kind":"say","user":"eve","text":"!"}
`

func TestExpectedCountsUsersOfEveryKind(t *testing.T) {
	s, err := Read(strings.NewReader(chat))
	if err != nil {
		t.Fatal(err)
	}
	if s.Rooms[0] != (Room{"a", 3, 3}) || s.Rooms[1] != (Room{"b", 2, 1}) {
		t.Fatalf("rooms %+v", s.Rooms)
	}
	if got := s.Expected(); got != 3*3+2*1 {
		t.Fatalf("expected %d", got)
	}
	if last := s.Says[3]; last.Room != 0 || last.Index != 2 || last.User != "eve" || last.Minute != 9*60+15 {
		t.Fatalf("last say %+v", last)
	}
}

func TestReadsGzip(t *testing.T) {
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, _ = w.Write([]byte(chat))
	_ = w.Close()
	s, err := Read(&zipped)
	if err != nil || s.Expected() != 11 {
		t.Fatalf("%v %v", s, err)
	}
}

func TestReadNamesTheBadLine(t *testing.T) {
	for in, want := range map[string]string{
		"":            "nothing is said",
		"{":           "line 1",
		chat + "nope": "line 8",
		`{"room":"a","at":"09:14","kind":"sing","user":"ann"}`: `kind "sing"`,
		`{"room":"a","at":"25:14","kind":"say","user":"ann"}`:  `at "25:14"`,
		`{"room":"a","at":"1","kind":"say","user":"ann"}`:      `at "1"`,
		`{"room":"","at":"09:14","kind":"say","user":"ann"}`:   "needs room and user",
		"\x1f\x8b no gzip": "gzip",
	} {
		if _, err := Read(strings.NewReader(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", in, err, want)
		}
	}
}

func TestTake(t *testing.T) {
	s, err := Read(strings.NewReader(chat))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rooms    int
		fraction float64
		expected uint64
		says     int
	}{{0, 0, 11, 4}, {1, 0, 9, 3}, {9, 1, 11, 4}, {0, 0.5, 9, 3}, {0, 0.9, 11, 4}} {
		part := s.Take(c.rooms, c.fraction)
		if part.Expected() != c.expected || len(part.Says) != c.says {
			t.Errorf("Take(%d, %v): expected %d, %d says", c.rooms, c.fraction, part.Expected(), len(part.Says))
		}
	}
}

func TestWavesKeepBelowTheLimit(t *testing.T) {
	s := &Script{
		Rooms: []Room{{"a", 3, 1}, {"b", 4, 1}, {"c", 5, 1}, {"d", 1, 2}},
		Says:  []Say{{Room: 0}, {Room: 2}, {Room: 1}, {Room: 3}, {Room: 3, Index: 1}},
	}
	waves, err := s.waves(7)
	if err != nil {
		t.Fatal(err)
	}
	if len(waves) != 2 || waves[0].users != 7 || waves[1].users != 6 {
		t.Fatalf("waves %+v", waves)
	}
	if w := waves[1]; w.expected != 7 || len(w.says) != 3 || w.says[0].Room != 2 || w.says[2].Index != 1 {
		t.Fatalf("second wave %+v", w)
	}
	if _, err := s.waves(4); err == nil || !strings.Contains(err.Error(), "room c") {
		t.Fatalf("a room above the limit: %v", err)
	}
}
