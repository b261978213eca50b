package subscribe

import (
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
)

func TestRankedMessagesAreShownWithTheirScores(t *testing.T) {
	all := []*pushmesh.Delivery{
		{Topic: "news/a", Seq: 3, Payload: []byte("c"), Score: 1.5},
		{Topic: "news/a", Seq: 1, Payload: []byte("a")},
		{Topic: "news/a", Payload: []byte("b"), Unranked: true},
	}
	for format, want := range map[string]string{
		"text": "news/a\t3\t1.5\tc\nnews/a\t1\t-\ta\nnews/a\t-\tunranked\tb\n",
		"json": `"payload":"c","score":1.5}`,
	} {
		var out strings.Builder
		c := &Command{rankedFlags: rankedFlags{RankTopK: 1}, FormatFlag: cmdline.FormatFlag{Format: format}}
		for _, d := range all {
			if err := c.showMessage(&out, d); err != nil {
				t.Fatal(err)
			}
		}
		if !strings.Contains(out.String(), want) || format == "json" && !strings.Contains(out.String(), `"payload":"b","unranked":true}`) {
			t.Errorf("%s: %s", format, out.String())
		}
	}
}
