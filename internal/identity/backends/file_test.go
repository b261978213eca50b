package backends

import (
	"strings"
	"testing"
)

// A subject that no verifier lets through would refuse its backend for ever, and the file be good.
func TestSubjectsThatNoTokenCanHave(t *testing.T) {
	for sub, good := range map[string]bool{
		"ci": true, "system:serviceaccount:prod:orders": true, strings.Repeat("x", 185): true,
		"repo:example/app:ref:refs/heads/main": false, "a+b": false, strings.Repeat("x", 190): false,
	} {
		_, err := Parse([]byte(`backends: [{name: a, tokens: [{issuer: corp, sub: "`+sub+`"}]}]`), corp)
		if (err == nil) != good {
			t.Errorf("%s: %v", sub, err)
		}
	}
}
