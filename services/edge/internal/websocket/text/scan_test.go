package text

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// sameJSON fails where IsJSON and encoding/json disagree.
func sameJSON(t rapid.TB, b []byte) {
	t.Helper()
	if got, want := IsJSON(b), isJSON(b); got != want {
		t.Fatalf("%q is JSON: %v, by encoding/json %v", b, got, want)
	}
}

// pieces are what JSON is made of, and what breaks it.
var pieces = []string{
	"{", "}", "[", "]", ",", ":", `"`, `""`, `"a"`, `"a":`, `\`, `\\`, `\"`, `\u00e9`, `\u00`, `\x`, "true", "tru", "false", "null", "0", "01", "-", "-0",
	"1", "12345678901", ".5", "1.", "1.25", "e", "1e5", "E+", "1E-07", " ", "\n", "\t\r", "\x00", "\x1f", "\x7f", "é", "\xff", "\xe2\x80", "\u2028", "plain text of some length",
}

func TestIsJSONAgreesWithTheStandardLibrary(t *testing.T) {
	for _, s := range strange {
		sameJSON(t, []byte(s))
	}
	for _, p := range pieces {
		for _, q := range pieces {
			for _, around := range [][2]string{{"", ""}, {"[", "]"}, {`"`, `"`}, {`{"a":`, "}"}} {
				sameJSON(t, []byte(around[0]+p+q+around[1]))
			}
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		sameJSON(rt, []byte(strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 12).Draw(rt, "pieces"), "")))
	})
}

// document draws JSON.
func document(t *rapid.T, depth int) string {
	blank := func() string { return rapid.SampledFrom([]string{"", "", "", " ", "\n  ", "\r\t"}).Draw(t, "blank") }
	text := func() string {
		return `"` + strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "text of some length", `\"`, `\u0041`, "é", "\u2028", `\\`}), 0, 4).Draw(t, "text"), "") + `"`
	}
	n := rapid.IntRange(0, 3).Draw(t, "n")
	var all []string
	switch kind := rapid.IntRange(0, 3).Draw(t, "kind"); {
	case depth > 0 && kind == 0:
		for range n {
			all = append(all, blank()+document(t, depth-1)+blank())
		}
		return "[" + strings.Join(all, ",") + blank() + "]"
	case depth > 0 && kind == 1:
		for range n {
			all = append(all, blank()+text()+blank()+":"+blank()+document(t, depth-1)+blank())
		}
		return "{" + strings.Join(all, ",") + blank() + "}"
	case kind == 2:
		return text()
	}
	return rapid.SampledFrom([]string{"0", "-1", "12.5", "1e9", "0.1E-3", "true", "false", "null"}).Draw(t, "word")
}

// Documents are JSON; and so are what is left of them where a byte is taken out or another put in,
// wherever the standard library says so.
func TestDocumentsAndWhatIsAlmostOne(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := []byte(document(rt, 4))
		if sameJSON(rt, b); !IsJSON(b) {
			rt.Fatalf("%q is no JSON", b)
		}
		at := rapid.IntRange(0, len(b)-1).Draw(rt, "at")
		sameJSON(rt, append(append([]byte{}, b[:at]...), b[at+1:]...))
		sameJSON(rt, b[:at])
		b[at] = rapid.Byte().Draw(rt, "byte")
		sameJSON(rt, b)
	})
}

func TestDepthIsBounded(t *testing.T) {
	for _, c := range []struct {
		begin, end string
		levels     int // of one
	}{{"[", "]", 1}, {`{"a":`, "}", 1}, {`[ {"a":`, "}]", 2}, {`{"a":[0,`, "]}", 2}} {
		for n := range MaxDepth/c.levels + 3 {
			b := strings.Repeat(c.begin, n) + "1" + strings.Repeat(c.end, n)
			if got := IsJSON([]byte(b)); got != (n*c.levels <= MaxDepth) {
				t.Fatalf("%d times %s is JSON: %v", n, c.begin, got)
			}
			if n > 0 && (IsJSON([]byte(b[:len(b)-1])) || IsJSON([]byte(b+c.end[len(c.end)-1:]))) {
				t.Fatalf("%d times %s is JSON with a %s less or more", n, c.begin, c.end)
			}
			// each end is that of what it ends
			if wrong := (n - 1) / 2 * len(c.end); n > 0 {
				at := len(b) - wrong - 1
				other := byte(']')
				if b[at] == other {
					other = '}'
				}
				if IsJSON([]byte(b[:at] + string(other) + b[at+1:])) {
					t.Fatalf("%d times %s is JSON with a %c at %d", n, c.begin, other, at)
				}
			}
		}
	}
}

func TestScanningAllocatesNothing(t *testing.T) {
	for name, doc := range documents() {
		if n := testing.AllocsPerRun(10, func() { IsJSON(doc) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func FuzzIsJSON(f *testing.F) {
	for _, s := range strange {
		f.Add([]byte(s))
	}
	f.Add([]byte(`{"a":[1,-2.5e+7,{"b":"text of some length \u00e9\n"},[],{}],"c":null}`))
	f.Add([]byte(strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth)))
	f.Fuzz(func(t *testing.T, in []byte) { sameJSON(t, in) })
}

func TestLongPayloadsAreNotLookedAt(t *testing.T) {
	payload := []byte(`"` + strings.Repeat("x", MaxJSON-2) + `"`)
	if !IsJSON(payload) {
		t.Error("the longest one is no JSON")
	}
	if IsJSON(append(payload, ' ')) {
		t.Error("a longer one is JSON")
	}
}
