// Package ranking has the commands that rank candidates and keep models.
package ranking

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/candidates"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// maxRanked bounds an answer: 100,000 candidates with ids of some hundred bytes.
const maxRanked = 64 << 20

type Rank struct {
	File    string        `arg:"" optional:"" type:"existingfile" help:"Candidates: LibSVM lines, or lines of JSON; standard input without it."`
	Query   string        `type:"existingfile" placeholder:"FILE" help:"File with the number of candidates of each query, one number a line."`
	Prefix  string        `placeholder:"TEXT" help:"Text before the index of a LibSVM feature that makes its name, like Column_ or f."`
	Top     uint32        `placeholder:"K" help:"Print the best K of each query; all by default."`
	Timeout time.Duration `default:"15s" placeholder:"D" help:"How long to wait for each query's answer (${default})."`
	rankingFlags
	cmdline.RouterFlag
	cmdline.FormatFlag
}

func (Rank) Help() string {
	return `Prints a line for each candidate: QUERY, PLACE, SCORE and ID, separated by tabs, and with --explain the parts of the score. The id of a
LibSVM line is its number in the file; lines with the same qid are one query. A candidate in JSON is an object on one line with id,
features, headers, priority, published_at, vector, topic.

  pushmesh rank docs.txt --query docs.query --weights 5=1,17=0.5 --top 3 --explain
  pushmesh rank items.jsonl --expression 'features.quality * profile.quality - age / 3600.0' --profile quality=2
  pushmesh rank items.jsonl --embedding cosine --vector 0.1,0.7,0.2 --filter 'headers.lang == "en"' --format json
  pushmesh rank docs.txt --model clicks@3 --prefix Column_ --diversify header:site:2
  pushmesh rank items.jsonl --namespace news --profile sport=1
  pushmesh rank items.jsonl --request scorer.json        # a RankRequest without candidates`
}

// Run ranks query by query; the first refusal ends it.
func (c *Rank) Run(ctx context.Context, stdio cmdline.IO) error {
	if c.Timeout <= 0 {
		return cmdline.Usage("--timeout is %v, it must be above 0", c.Timeout)
	}
	request, err := c.request()
	if err != nil {
		return err
	}
	request.TopK = max(request.GetTopK(), c.Top)
	next, closeInput, err := c.queries(stdio.In)
	if err != nil {
		return err
	}
	conn, err := c.Dial()
	if err != nil {
		return errors.Join(err, closeInput())
	}
	err = c.rank(ctx, pushmeshv1.NewRankServiceClient(conn), request, next, stdio)
	return errors.Join(err, conn.Close(), closeInput())
}

// queries opens the input. next gives the candidates of one query after the other, and io.EOF at
// the end.
func (c *Rank) queries(in io.Reader) (next func() ([]*candidates.Line, error), closeInput func() error, err error) {
	var sizes []int
	if c.Query != "" {
		f, err := os.Open(c.Query)
		if err != nil {
			return nil, nil, err
		}
		sizes, err = candidates.Sizes(f, c.Query)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, nil, err
		}
	}
	name, closeInput := "standard input", func() error { return nil }
	if c.File != "" {
		f, err := os.Open(c.File)
		if err != nil {
			return nil, nil, err
		}
		in, name, closeInput = f, c.File, f.Close
	}
	r := candidates.NewReader(in, candidates.Config{Name: name, Prefix: c.Prefix})
	if c.Query == "" {
		return r.Query, closeInput, nil
	}
	return func() ([]*candidates.Line, error) {
		if len(sizes) == 0 {
			if l, err := r.Next(); err == nil {
				return nil, fmt.Errorf("%s: line %d: a candidate of no query: %s has fewer", name, l.Number, c.Query)
			} else if !errors.Is(err, io.EOF) {
				return nil, err
			}
			return nil, io.EOF
		}
		n := sizes[0]
		sizes = sizes[1:]
		return r.Some(n)
	}, closeInput, nil
}

func (c *Rank) rank(
	ctx context.Context, api pushmeshv1.RankServiceClient, request *pushmeshv1.RankRequest, next func() ([]*candidates.Line, error), stdio cmdline.IO,
) error {
	for query := 1; ; query++ {
		lines, err := next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		request.Candidates = request.Candidates[:0]
		for _, l := range lines {
			request.Candidates = append(request.Candidates, l.Candidate)
		}
		call, cancel := context.WithTimeout(ctx, c.Timeout)
		answer, err := api.Rank(call, request, grpc.MaxCallRecvMsgSize(maxRanked))
		cancel()
		if err != nil {
			return err
		}
		if n := answer.GetFiltered(); n > 0 {
			fmt.Fprintf(stdio.Err, "query %d: the filter removed %d of %d candidates\n", query, n, len(lines))
		}
		if err := c.print(stdio.Out, query, lines, answer); err != nil {
			return err
		}
	}
}
