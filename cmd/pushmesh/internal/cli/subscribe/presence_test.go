package subscribe

import (
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/client/presence"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
)

func TestPresenceIsShown(t *testing.T) {
	all := []presence.Change{
		{Topic: "crew/1", All: true, Joined: []presence.Member{{User: "ann", State: []byte("typing")}, {User: "bob"}}, Count: 2},
		{Topic: "crew/1", Changed: []presence.Member{{User: "ann", State: []byte{0xff}}}, Left: []string{"bob"}, Count: 1},
		{Topic: "crew/1", Count: 900, CountsOnly: true},
	}
	for format, want := range map[string]string{
		"text": "crew/1\tjoined\tann\t\"typing\"\ncrew/1\tjoined\tbob\ncrew/1\tchanged\tann\t\"\\xff\"\ncrew/1\tleft\tbob\ncrew/1\tusers\t900\n",
		"json": `{"presence":{"topic":"crew/1","all":true,"joined":[{"user":"ann","state":"typing"},{"user":"bob"}],"users":2}}
{"presence":{"topic":"crew/1","changed":[{"user":"ann","state_base64":"/w=="}],"left":["bob"],"users":1}}
{"presence":{"topic":"crew/1","users":900,"counts_only":true}}
`,
	} {
		var out strings.Builder
		c := &Command{FormatFlag: cmdline.FormatFlag{Format: format}}
		for _, one := range all {
			if err := c.showPresence(&out, one); err != nil {
				t.Fatal(err)
			}
		}
		if out.String() != want {
			t.Errorf("%s: %s", format, out.String())
		}
	}
}

func TestPresenceIsOfTopicsOverAnEdge(t *testing.T) {
	for _, c := range []*Command{{Presence: true, GRPC: true, Filters: []string{"a"}}, {Presence: true, Filters: []string{"a", "b/+"}}} {
		if c.checkPresence() == nil {
			t.Errorf("%+v is taken", c)
		}
	}
	if err := (&Command{Presence: true, Filters: []string{"a"}}).checkPresence(); err != nil {
		t.Error(err)
	}
}
