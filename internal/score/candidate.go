package score

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pushmesh/pushmesh/internal/expr"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Candidate is one of those that are ranked: what pushmeshv1.Candidate has. Its tables have either
// form, so that nobody makes a map for each of many candidates.
type Candidate struct {
	ID, Topic   string
	Features    expr.Table[float64]
	Headers     expr.Table[string]
	Priority    uint32
	PublishedAt Time
	Vector      []float32
	Payload     []byte
}

// Time is a timestamp without an allocation of its own.
type Time struct {
	Seconds int64
	Nanos   int32
	Set     bool
}

// Candidates are those of a request. They share their maps, vectors and payloads with it.
func Candidates(of []*pushmeshv1.Candidate) []Candidate {
	out := make([]Candidate, len(of))
	for i, c := range of {
		o := &out[i]
		o.ID, o.Topic, o.Priority, o.Vector, o.Payload = c.GetId(), c.GetTopic(), c.GetPriority(), c.GetVector(), c.GetPayload()
		o.Features.Map, o.Headers.Map = c.GetFeatures(), c.GetHeaders()
		if t := c.GetPublishedAt(); t != nil {
			o.PublishedAt = Time{t.GetSeconds(), t.GetNanos(), true}
		}
	}
	return out
}

// The years that a timestamp has, as google.protobuf.Timestamp says.
const (
	firstSecond = -62135596800
	lastSecond  = 253402300799
)

// check finds a timestamp that is none.
func (t Time) check() error {
	if !t.Set || t.Seconds >= firstSecond && t.Seconds <= lastSecond && t.Nanos >= 0 && t.Nanos < 1e9 {
		return nil
	}
	return (&timestamppb.Timestamp{Seconds: t.Seconds, Nanos: t.Nanos}).CheckValid()
}

// Check finds what a scorer would refuse of the candidate at a place.
func (c *Candidate) Check(place int) error {
	if c.Priority > MaxPriority {
		return invalid("candidate %d: priority %d, at most %d", place, c.Priority, MaxPriority)
	}
	if name, bad := infinite(&c.Features); bad {
		return invalid("candidate %d: feature %.64q must be finite", place, name)
	}
	if err := checkVector(c.Vector); err != nil {
		return invalid("candidate %d: vector: %v", place, err)
	}
	if err := c.PublishedAt.check(); err != nil {
		return invalid("candidate %d: published_at: %v", place, err)
	}
	return nil
}

// infinite finds a value that is not finite. It looks at each of every candidate, so it asks no
// iterator.
func infinite(t *expr.Table[float64]) (name string, bad bool) {
	for name, v := range t.Map {
		if v-v != 0 {
			return name, true
		}
	}
	for i := range t.Pairs {
		if v := t.Pairs[i].Value; v-v != 0 {
			return t.Pairs[i].Name, true
		}
	}
	return "", false
}

// age in seconds: at least 0, and 0 without published_at, since clocks that differ must not lift a
// message.
func (c *Candidate) age(now time.Time) float64 {
	if !c.PublishedAt.Set {
		return 0
	}
	return max(now.Sub(time.Unix(c.PublishedAt.Seconds, int64(c.PublishedAt.Nanos))).Seconds(), 0)
}
