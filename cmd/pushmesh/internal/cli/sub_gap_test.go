package cli

import (
	"bytes"
	"testing"

	pushmesh "github.com/pushmesh/pushmesh/client"
)

func TestGapSaysWhatIsKnown(t *testing.T) {
	for _, c := range []struct {
		gap  pushmesh.Gap
		want string
	}{
		{pushmesh.Gap{Topic: "a", From: 2, To: 5, Code: 34}, "a: messages 2 to 5 will not come: CONFLATED\n"},
		{pushmesh.Gap{Filter: "a/#", Missed: 7, Code: 32}, "a/#: 7 messages will not come: RETENTION\n"},
		{pushmesh.Gap{Topic: "a", Code: 32}, "a: the log does not hold the position asked for, going on with what it has and what comes\n"},
		{pushmesh.Gap{Topic: "a", Epoch: 7, Code: 28}, "a: the log was begun anew (its epoch is 7 now), going on with what it has\n"},
	} {
		var out bytes.Buffer
		(&printer{stdio: stdio{err: &out}}).gap(c.gap)
		if out.String() != c.want {
			t.Errorf("%+v: %q, want %q", c.gap, out.String(), c.want)
		}
	}
}
