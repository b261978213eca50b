package shardlog

import (
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// What a takeover has to read again stays bounded also when the clock went back.
func TestACheckpointIsDue(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		after    time.Duration
		messages int
		want     bool
	}{
		"just begun":      {0, checkpointAfter - 1, false},
		"almost":          {checkpointEvery - 1, 0, false},
		"time":            {checkpointEvery, 0, true},
		"messages":        {0, checkpointAfter, true},
		"back by an hour": {-time.Hour, 0, true},
	} {
		if got := (&checkpointer{messages: c.messages, begunAt: noon}).due(noon.Add(c.after)); got != c.want {
			t.Errorf("%s: due is %v", name, got)
		}
	}
}

// What can't be told of later is bounded, and that there was more is known.
func TestUnprovenStatesAreBounded(t *testing.T) {
	var u unproven
	for range unprovenMost / checkpointPart {
		u.add(&backend.Checkpoint{Topics: make([]backend.Topic, checkpointPart)})
	}
	if u.tooMany() || len(u.parts) != unprovenMost/checkpointPart {
		t.Errorf("%d parts of %d states", len(u.parts), u.states)
	}
	for range 2 {
		u.add(&backend.Checkpoint{Shards: make([]backend.Shard, 1)})
		if !u.tooMany() || len(u.parts) != 0 {
			t.Errorf("%d parts of %d states", len(u.parts), u.states)
		}
	}
}
