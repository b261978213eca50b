package outbox

import (
	"testing"
)

func FuzzSnapshot(f *testing.F) {
	for _, s := range []string{"1:1:", "10:20:10,14,15", "", "1:2", "a:b:c", "1:2:,"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseSnapshot(text)
		if err == nil && (s.text != text || s.underWay == nil) {
			t.Errorf("%q parsed as %+v", text, s)
		}
	})
}
