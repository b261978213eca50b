package ranking

import (
	"fmt"
	"io"
	"strings"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/candidates"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Ranked is one candidate as `rank --format json` prints it.
type Ranked struct {
	Query         int            `json:"query"`
	Place         int            `json:"place"`
	Score         float64        `json:"score"`
	ID            string         `json:"id"`
	Line          int            `json:"line"`
	Label         string         `json:"label,omitempty"`
	ModelVersion  uint64         `json:"model_version,omitempty"`
	Contributions []Contribution `json:"contributions,omitempty"`
}

type Contribution struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// printRanked writes one line.
func (c *Rank) printRanked(w io.Writer, s *Ranked) error {
	if c.Format == "json" {
		return cmdline.WriteJSON(w, s)
	}
	var parts strings.Builder
	for i, c := range s.Contributions {
		before := " "
		if i == 0 {
			before = "\t"
		}
		name := c.Name
		if name == "" {
			name = "(constant)"
		}
		fmt.Fprintf(&parts, "%s%s=%s", before, name, cmdline.ShortNumber(c.Value))
	}
	_, err := fmt.Fprintf(w, "%d\t%d\t%s\t%s%s\n", s.Query, s.Place, cmdline.ShortNumber(s.Score), s.ID, parts.String())
	return err
}

// print writes a line for each candidate of an answer.
func (c *Rank) print(w io.Writer, query int, lines []*candidates.Line, answer *pushmeshv1.RankResponse) error {
	for i, r := range answer.GetRanked() {
		if int(r.GetIndex()) >= len(lines) {
			return fmt.Errorf("query %d: the answer names candidate %d of %d", query, r.GetIndex(), len(lines))
		}
		l := lines[r.GetIndex()]
		s := &Ranked{
			Query: query, Place: i + 1, Score: r.GetScore(), ID: r.GetId(), Line: l.Number, Label: l.Label, ModelVersion: answer.GetModelVersion(),
		}
		for _, part := range r.GetContributions() {
			s.Contributions = append(s.Contributions, Contribution{part.GetName(), part.GetValue()})
		}
		if err := c.printRanked(w, s); err != nil {
			return err
		}
	}
	return nil
}
