package subscribe

import (
	"fmt"
	"io"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
)

// rankedFlags are those of ranked subscriptions.
type rankedFlags struct {
	RankTopK      uint32    `name:"rank-top-k" placeholder:"N" help:"Ranked delivery: the best N messages first, by the rank policy of the topic's namespace."`
	Profile       []string  `placeholder:"NAME=VALUE" help:"Features that messages are ranked for, separated by commas."`
	ProfileVector []float32 `name:"profile-vector" placeholder:"NUMBER" help:"The vector that messages are ranked for by embeddings, separated by commas."`
}

func (f *rankedFlags) profile() (map[string]float64, []float32, error) {
	features, err := cmdline.Numbers("profile", f.Profile)
	if err == nil && f.RankTopK == 0 && len(features)+len(f.ProfileVector) > 0 {
		err = cmdline.Usage("--profile and --profile-vector need --rank-top-k")
	}
	return features, f.ProfileVector, err
}

// printRanked writes one line: "topic seq score payload".
func printRanked(w io.Writer, m *cmdline.Message) error {
	score := "-"
	switch {
	case m.Unranked:
		score = "unranked"
	case m.Score != 0:
		score = cmdline.ShortNumber(m.Score)
	}
	_, err := fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", m.Topic, m.Number(), score, m.Text())
	return err
}
