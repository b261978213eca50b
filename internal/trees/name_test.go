package trees

import (
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func TestNames(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{
		"ctr": true, "a": true, "click-rate_2": true, strings.Repeat("x", 64): true,
		"": false, "CTR": false, "a b": false, "a/b": false, "ä": false, strings.Repeat("x", 65): false,
	} {
		if err := CheckName(name); (err == nil) != ok || err != nil && code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
			t.Errorf("%q: %v", name, err)
		}
	}
}
