package ranking

import (
	"strconv"
	"strings"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// rankingFlags say how to rank.
type rankingFlags struct {
	Weights    []string `placeholder:"NAME=WEIGHT" help:"Score by weighted features, separated by commas."`
	Expression string   `placeholder:"TEXT" help:"Score by a CEL expression."`
	Model      string   `placeholder:"NAME[@VERSION]" help:"Score by a stored model, the newest version by default."`
	Output     uint32   `placeholder:"N" help:"Output of a model with several, counted from 0."`
	Embedding  string   `enum:"dot,cosine," default:"" placeholder:"dot|cosine" help:"Score by the candidates' vectors and --vector."`
	Vector     []string `placeholder:"NUMBERS" help:"For --embedding: the vector to compare with, separated by commas."`
	Namespace  string   `placeholder:"PREFIX" help:"Score by the rank policy of a namespace."`
	Request    string   `type:"existingfile" placeholder:"FILE" help:"A RankRequest as JSON, without candidates; flags override its fields."`
	Filter     string   `placeholder:"TEXT" help:"CEL expression that is true for the candidates to keep."`
	Diversify  string   `placeholder:"KEY:N" help:"At most N candidates with one topic, header:NAME or feature:NAME among the best."`
	Profile    []string `placeholder:"NAME=VALUE" help:"Features of the user that the ranking is for, separated by commas."`
	Explain    bool     `help:"Print the parts of each score, of weights or a model; expressions and embeddings have no parts."`
}

// request of the flags, without candidates.
func (f *rankingFlags) request() (*pushmeshv1.RankRequest, error) {
	r := &pushmeshv1.RankRequest{}
	if f.Request != "" {
		if err := cmdline.ReadProto(f.Request, r); err != nil {
			return nil, err
		}
		if len(r.GetCandidates()) > 0 {
			return nil, cmdline.Usage("--request %s has candidates; they come from the input", f.Request)
		}
	}
	if err := f.scorer(r); err != nil {
		return nil, err
	}
	if f.Filter != "" {
		r.Filter = f.Filter
	}
	if f.Diversify != "" {
		at := strings.LastIndexByte(f.Diversify, ':')
		most, err := strconv.ParseUint(f.Diversify[at+1:], 10, 32)
		if at < 0 || err != nil || most == 0 {
			return nil, cmdline.Usage("--diversify %q: KEY:N, like topic:2 or header:site:1", f.Diversify)
		}
		r.Diversify = &pushmeshv1.Diversify{Key: f.Diversify[:at], AtMost: uint32(most)}
	}
	profile, err := cmdline.Numbers("profile", f.Profile)
	if err != nil {
		return nil, err
	}
	if profile != nil {
		r.Profile = profile
	}
	r.Explain = r.GetExplain() || f.Explain
	return r, nil
}

// scorer of a request: one, whether a flag or --request gives it.
func (f *rankingFlags) scorer(r *pushmeshv1.RankRequest) error {
	if len(f.Weights) > 0 {
		weights, err := cmdline.Numbers("weights", f.Weights)
		if err != nil {
			return err
		}
		r.Weighted = &pushmeshv1.WeightedScorer{Weights: weights}
	}
	if f.Expression != "" {
		r.Expression = &pushmeshv1.ExpressionScorer{Expression: f.Expression}
	}
	if f.Embedding != "" {
		r.Embedding = &pushmeshv1.EmbeddingScorer{}
		if f.Embedding == "cosine" {
			r.Embedding.Metric = pushmeshv1.EmbeddingScorer_METRIC_COSINE
		}
	}
	if f.Model != "" {
		name, version, err := modelVersion("--model", f.Model)
		if err != nil {
			return err
		}
		r.Model = &pushmeshv1.ModelScorer{Name: name, Version: version, Output: f.Output}
	}
	if len(f.Vector) > 0 {
		r.ProfileVector = r.GetProfileVector()[:0]
		for _, text := range f.Vector {
			v, err := strconv.ParseFloat(strings.TrimSpace(text), 32)
			if err != nil {
				return cmdline.Usage("--vector: %q is not a number", text)
			}
			r.ProfileVector = append(r.ProfileVector, float32(v))
		}
	}
	if f.Namespace != "" {
		r.Namespace = f.Namespace
	}
	given := 0
	for _, set := range []bool{r.GetWeighted() != nil, r.GetExpression() != nil, r.GetEmbedding() != nil, r.GetModel() != nil, r.GetNamespace() != ""} {
		if set {
			given++
		}
	}
	if given != 1 {
		return cmdline.Usage("give exactly one of --weights, --expression, --model, --embedding and --namespace, or a scorer in --request; there are %d", given)
	}
	if r.GetEmbedding() != nil && len(r.GetProfileVector()) == 0 {
		return cmdline.Usage("--embedding and --vector need each other")
	}
	return nil
}
