package groups

import (
	"context"
	"testing"
)

// Who asks what an edge knows of its groups may come before it has started.
func TestDescribeBeforeTheStart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if all := New(Config{}).Describe(ctx); all != nil {
		t.Fatalf("it knows %v", all)
	}
}
