package router

import (
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/settings"
)

func TestEveryFaultOfTheSettingsIsReported(t *testing.T) {
	s := Settings{
		ID: "a b", Listen: "nowhere", HTTP: "x", Advertise: "y", Stores: []string{"store"}, Computes: []string{"compute"},
		ProducerRate: -1, ProducerInFlight: -1, MaxRate: -1, MaxInFlight: -1, MaxBytes: -1, EdgeQueueBytes: -1,
		AppendWait: -1, MaxConnections: -1, MaxCalls: -1, CallerClaims: -1, ClaimWatches: -1, BroadcastFrom: 1, TraceRatio: 2,
	}
	err := s.Check()
	for _, part := range []string{
		"id", "--listen", "--http", "--advertise", "--stores", "--computes", "--producer-rate", "--producer-in-flight", "--max-rate",
		"--max-in-flight", "--max-bytes", "--edge-queue-bytes", "--append-wait", "--max-connections", "--max-calls", "--caller-claims", "--claim-watches", "--broadcast-from", "--trace-ratio",
	} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s is not in: %v", part, err)
		}
	}
	if _, err := New(t.Context(), s); err == nil {
		t.Error("New took them")
	}
}

// pushmesh dev sets only some of the fields: what it leaves out must be what the flags' defaults
// are.
func TestDefaultsAreThoseOfTheFlags(t *testing.T) {
	var parsed Settings
	if err := settings.Parse(&parsed, "router", "", []string{"--id=r", "--open", "--plain-tiers"}, t.Output()); err != nil {
		t.Fatal(err)
	}
	set := Settings{ID: "r", TraceRatio: parsed.TraceRatio}.withDefaults()
	if parsed.Listen != set.Listen || parsed.HTTP != set.HTTP || parsed.NATS != set.NATS || strings.Join(parsed.Stores, ",") != strings.Join(set.Stores, ",") ||
		parsed.ProducerRate != set.ProducerRate || parsed.ProducerInFlight != set.ProducerInFlight || parsed.MaxRate != set.MaxRate ||
		parsed.MaxInFlight != set.MaxInFlight || parsed.MaxBytes != set.MaxBytes || parsed.EdgeQueueBytes != set.EdgeQueueBytes ||
		parsed.AppendWait != set.AppendWait || parsed.MaxConnections != set.MaxConnections || parsed.MaxCalls != set.MaxCalls || parsed.CallerClaims != set.CallerClaims || parsed.ClaimWatches != set.ClaimWatches || parsed.BroadcastFrom != set.BroadcastFrom || parsed.LogLevel != set.LogLevel || parsed.Grace != set.Grace {
		t.Errorf("flags %+v, zero values %+v", parsed, set)
	}
}
