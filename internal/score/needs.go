package score

// Needs says which parts of candidates and profiles a Scoring looks at: whoever makes candidates
// may leave out the others.
type Needs struct {
	ID, Topic, Features, Vector, Headers, Payload bool
	// PublishedAt: the score depends on age.
	PublishedAt bool
	// Profile: its features. Of its vector, Vector tells.
	Profile bool
}

// Personal reports whether profiles matter: otherwise all get the same.
func (n Needs) Personal() bool { return n.Profile || n.Vector }

// NeedsOf a Scoring that Compile takes wherever there is every model.
func NeedsOf(s Scoring, parts Parts) (Needs, error) {
	var n Needs
	switch {
	case s.GetWeighted() != nil:
		w := s.GetWeighted()
		n.Profile = len(w.GetAffinities()) > 0
		n.Features = n.Profile || len(w.GetWeights()) > 0
		n.PublishedAt = w.GetHalfLife().AsDuration() > 0
	case s.GetExpression() != nil:
		e, err := compileExpression(s.GetExpression(), parts)
		if err != nil {
			return n, err
		}
		n.add(e.program)
	case s.GetEmbedding() != nil:
		n.Vector = true
	case s.GetModel() != nil:
		n.Features, n.Profile = true, true
	}
	f, err := compileFilter(s.GetFilter(), parts)
	if err != nil {
		return n, err
	}
	if f != nil {
		n.add(f.program)
	}
	d, err := compileDiversify(s.GetDiversify())
	if err != nil {
		return n, err
	}
	if d != nil {
		n.Topic, n.Headers, n.Features = n.Topic || d.of == "topic", n.Headers || d.of == "header", n.Features || d.of == "feature"
	}
	return n, nil
}

func (n *Needs) add(p program) {
	for name, need := range map[string]*bool{
		"id": &n.ID, "topic": &n.Topic, "features": &n.Features, "headers": &n.Headers, "payload": &n.Payload, "age": &n.PublishedAt, "profile": &n.Profile,
	} {
		*need = *need || p.Uses(name)
	}
}
