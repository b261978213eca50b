package cli

import (
	"strings"
	"testing"

	pushmesh "github.com/pushmesh/pushmesh/client"
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
		c := &subCmd{rankedFlags: rankedFlags{RankTopK: 1}, formatFlag: formatFlag{Format: format}}
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

// A connection that is there gets another profile; one that is not is not counted.
func TestSetProfile(t *testing.T) {
	m := startMesh(t, t.TempDir())
	sub := start(t, nil, with(m.edge, "sub", "room/1", "--client-id", "phone", "--count", "1")...)
	sub.says("subscribed to")
	for user, want := range map[string]string{"client:phone": "1 connections\n", "client:desk": "0 connections\n"} {
		if out := must(t, "", with(m.router, "session", "set-profile", "--user", user, "sport=1", "--vector", "0.5,1")...); out != want {
			t.Errorf("%s: it says %q", user, out)
		}
	}
	must(t, "", with(m.router, "pub", "room/1", "x")...)
	if sub.wait(); sub.code != 0 {
		t.Errorf("exit code %d, %q", sub.code, sub.err.String())
	}
}
