package score

import (
	"math"
	"time"

	"github.com/pushmesh/pushmesh/internal/trees"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// model is ModelScorer.
type model struct {
	*trees.Model
	output int
}

func checkModel(s *pushmeshv1.ModelScorer) error {
	if err := trees.CheckName(s.GetName()); err != nil {
		return err
	}
	within := func(v, most float64) bool { return v >= 0 && v <= most } // not NaN
	switch {
	case s.GetNextVersion() == 0 && s.GetNextShare() != 0:
		return invalid("model: next_share without next_version")
	case s.GetNextVersion() != 0 && (s.GetVersion() == 0 || s.GetVersion() == s.GetNextVersion()):
		return invalid("model: next_version %d beside version %d: both are named, and differ", s.GetNextVersion(), s.GetVersion())
	case !within(s.GetNextShare(), 1) || !within(s.GetMaxErrorShare(), 1):
		return invalid("model: next_share and max_error_share are 0 to 1")
	case s.GetMaxSlowdown() != 0 && (s.GetMaxSlowdown() < 1 || !within(s.GetMaxSlowdown(), maxSlowdown)):
		return invalid("model: max_slowdown is 1 to %d", maxSlowdown)
	}
	return nil
}

// maxSlowdown is the most that a policy may allow a new version.
const maxSlowdown = 1000

// OfVersion is a Scoring whose model has another version: s names it, and what it says of a
// roll-out is left out.
func OfVersion(s Scoring, version uint64) Scoring {
	m := s.GetModel()
	return versioned{s, &pushmeshv1.ModelScorer{Name: m.GetName(), Version: version, Output: m.GetOutput()}}
}

type versioned struct {
	Scoring
	model *pushmeshv1.ModelScorer
}

func (v versioned) GetModel() *pushmeshv1.ModelScorer { return v.model }

// compileModel takes version. Whoever gives next_version its share asks for that by OfVersion.
func compileModel(s *pushmeshv1.ModelScorer, models Models) (*model, uint64, error) {
	if err := checkModel(s); err != nil {
		return nil, 0, err
	}
	if models == nil {
		return nil, 0, unsupported("model: this process has no models")
	}
	m, version, err := models.Model(s.GetName(), s.GetVersion())
	if err != nil {
		return nil, 0, err
	}
	if int64(s.GetOutput()) >= int64(m.Outputs()) {
		return nil, 0, invalid("model: output %d of %d", s.GetOutput(), m.Outputs())
	}
	return &model{m, int(s.GetOutput())}, version, nil
}

// What a step of trees.Model's Cost and ExplainCost takes, as it says, a column of a row, and an
// output's transformation.
const (
	treeStep    = 2 * time.Nanosecond
	explainStep = 3 * time.Nanosecond
	columnTime  = time.Nanosecond
	outputTime  = 10 * time.Nanosecond
)

func (m *model) cost() (once, each int) {
	columns := time.Duration(len(m.Columns())) * columnTime
	return steps(columns), steps(columns + time.Duration(m.Cost())*treeStep + time.Duration(m.Outputs())*outputTime)
}

func (m *model) explainCost() int { return steps(time.Duration(m.ExplainCost()) * explainStep) }

func (m *model) begin(j *Job) (scorer, error) {
	p := &prediction{model: m, job: j, profiles: make([][]cell, len(j.one))}
	for i := range j.one {
		for name, v := range j.one[i].Features {
			if place, ok := m.Column(name); ok {
				p.profiles[i] = append(p.profiles[i], cell{place, v})
			}
		}
	}
	return p, nil
}

// cell is a value of a row.
type cell struct {
	column int
	value  float64
}

// prediction is a model at work on a job.
type prediction struct {
	*model
	job      *Job
	profiles [][]cell // what a candidate's own features go before

	rows   []float64 // of the block, as the candidates' features make them
	own    []float64 // with a profile's
	shared []float64 // predictions of rows, once they are asked for
	scored bool
	scores []float64 // of own
	out    []float64
}

func (p *prediction) block(places []uint32) error {
	p.rows, p.scored = p.rows[:0], false
	for _, place := range places {
		p.rows = p.appendRow(p.rows, &p.job.candidates[place])
	}
	return nil
}

// appendRow appends what a candidate has of the model's columns; the others are missing.
func (p *prediction) appendRow(rows []float64, c *Candidate) []float64 {
	at := len(rows)
	for range p.Columns() {
		rows = append(rows, math.NaN())
	}
	for name, v := range c.Features.All() {
		if place, ok := p.Column(name); ok {
			rows[at+place] = v
		}
	}
	return rows
}

// fill puts a profile's features where a row has none.
func fill(row []float64, profile []cell) {
	for _, c := range profile {
		if math.IsNaN(row[c.column]) {
			row[c.column] = c.value
		}
	}
}

func (p *prediction) score(profile int, wanted []bool, out []float64) error {
	if len(p.profiles[profile]) == 0 {
		if !p.scored {
			p.shared = p.predict(p.shared[:0], p.rows, len(out))
			p.scored = true
		}
		copy(out, p.shared)
		return nil
	}
	width, n := len(p.Columns()), 0
	p.own = p.own[:0]
	for i := range out {
		if wanted[i] {
			p.own = append(p.own, p.rows[i*width:(i+1)*width]...)
			fill(p.own[n*width:], p.profiles[profile])
			n++
		}
	}
	p.scores = p.predict(p.scores[:0], p.own, n)
	n = 0
	for i := range out {
		if wanted[i] {
			out[i] = p.scores[n]
			n++
		}
	}
	return nil
}

// predict appends the scores of n rows: what the library predicts.
func (p *prediction) predict(dst, rows []float64, n int) []float64 {
	outputs := p.Outputs()
	if cap(p.out) < n*outputs {
		p.out = make([]float64, n*outputs)
	}
	out := p.out[:n*outputs]
	p.RawBatch(rows, out)
	for i := range n {
		one := out[i*outputs : (i+1)*outputs]
		p.Transform(one)
		dst = append(dst, one[p.output])
	}
	return dst
}

// explain says what each column contributed to the raw score, and "" the constant part.
func (p *prediction) explain(candidate, profile int) []*Contribution {
	row := p.appendRow(nil, &p.job.candidates[candidate])
	fill(row, p.profiles[profile])
	values := make([]float64, len(row)+1)
	p.Explain(row, p.output, values)
	var parts []*Contribution
	for i, v := range values {
		if v == 0 {
			continue
		}
		name := ""
		if i < len(row) {
			name = p.Columns()[i]
		}
		parts = append(parts, &Contribution{Name: name, Value: v})
	}
	return parts
}
