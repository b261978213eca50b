package gate

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	pb "github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// With --open everybody may make changes, and what they are about is whatever was sent: a line of
// the log is told what it was, and has no megabytes.
func TestALineOfTheLogIsBounded(t *testing.T) {
	var log lines
	c := &call{gate: New(Config{Log: slog.New(slog.NewTextHandler(&log, nil)), Caller: func(context.Context) string { return "token:x" }}), name: "x"}
	need := needs["pushmesh.v1.NamespaceService/Put"]
	c.need = &need
	c.tell(t.Context(), &pb.NamespaceServicePutRequest{Namespace: &pb.Namespace{Prefix: "orders/" + strings.Repeat("\n", 1<<20)}})
	if said := log.String(); !strings.Contains(said, "orders/") || len(said) > 4<<10 || strings.Count(said, "\n") != 1 {
		t.Errorf("a line has %d bytes and %d ends", len(said), strings.Count(said, "\n"))
	}
}
