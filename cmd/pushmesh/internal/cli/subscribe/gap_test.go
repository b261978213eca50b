package subscribe

import (
	"bytes"
	"testing"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
)

func TestGapSaysWhatIsKnown(t *testing.T) {
	for _, c := range []struct {
		gap  pushmesh.Gap
		want string
	}{
		{pushmesh.Gap{Topic: "a", From: 2, To: 5, Code: 34}, "a: messages 2 to 5 will not come: CONFLATED\n"},
		{pushmesh.Gap{Filter: "a/#", Missed: 7, Code: 32}, "a/#: 7 messages will not come: RETENTION\n"},
		{pushmesh.Gap{Topic: "a", Code: 32}, "a: the log does not have the requested position; continuing with the messages that it has\n"},
		{pushmesh.Gap{Topic: "a", Epoch: 7, Code: 28}, "a: the log began again with epoch 7; continuing with its messages\n"},
	} {
		var out bytes.Buffer
		(&printer{stdio: cmdline.IO{Err: &out}}).gap(c.gap)
		if out.String() != c.want {
			t.Errorf("%+v: %q, want %q", c.gap, out.String(), c.want)
		}
	}
}
