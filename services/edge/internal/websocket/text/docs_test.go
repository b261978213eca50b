package text

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/code"
)

// section is what docs/websocket.md says of frames as JSON.
func section(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../../../../docs/websocket.md")
	if err != nil {
		t.Fatal(err)
	}
	_, s, ok := strings.Cut(string(page), "\n## Frames as JSON\n")
	if !ok {
		t.Fatal("the page has no such section")
	}
	s, _, _ = strings.Cut(s, "\n## ")
	return s
}

// Each example of the page is read, and written as it stands there; and each frame has one.
func TestExamplesOfThePage(t *testing.T) {
	var shown []string
	for _, m := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(section(t), -1) {
		for text := range strings.Lines(m[1]) {
			text = strings.TrimSpace(text)
			frame, err := Parse(nil, []byte(text))
			if err != nil {
				t.Errorf("%s: %v", text, err)
				continue
			}
			shown = append(shown, byType[frame[3]].name)
			if again, err := AppendFrame(nil, frame); err != nil || string(again) != text {
				t.Errorf("%s\nis written as\n%s (%v)", text, again, err)
			}
		}
	}
	for _, f := range allFrames() {
		if !slices.Contains(shown, f.name) {
			t.Errorf("%s has no example", f.name)
		}
	}
}

// The page's table has the members that are numbers of 64 bits, in the order of the schema.
func TestNumbersThatThePageCallsStrings(t *testing.T) {
	var want []string
	for _, f := range allFrames() {
		if members := longNumbers(&f.object, ""); len(members) > 0 {
			want = append(want, f.name+": "+strings.Join(members, ", "))
		}
	}
	var got []string
	for _, m := range regexp.MustCompile("(?m)^  \\| (\\w+) \\| (`.*) \\|$").FindAllStringSubmatch(section(t), -1) {
		got = append(got, m[1]+": "+strings.ReplaceAll(m[2], "`", ""))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the page has\n%s\nthe schema\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func longNumbers(o *object, path string) (names []string) {
	for i := range o.fields {
		switch f := &o.fields[i]; f.kind {
		case kindUint64, kindFixed64:
			names = append(names, path+f.name)
		case kindObject:
			names = append(names, longNumbers(f.object, path+f.name+"[].")...)
		}
	}
	return names
}

func TestRefusalsOfThePage(t *testing.T) {
	rows := regexp.MustCompile("(?m)^\\| `(\\{.*)` \\| (at .*) \\|$").FindAllStringSubmatch(section(t), -1)
	if len(rows) < 9 {
		t.Fatalf("only %d rows found", len(rows))
	}
	for _, m := range rows {
		_, err := Parse(nil, []byte(m[1]))
		var why *code.Error
		if !errors.As(err, &why) || why.Message != m[2] {
			t.Errorf("%s: %v, the page says %s", m[1], err, m[2])
		}
	}
}
