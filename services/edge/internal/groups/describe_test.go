package groups

import (
	"context"
	"testing"
	"testing/synctest"
)

// Who asks what an edge knows of its groups may come before it has started.
func TestDescribeBeforeTheStart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if all := New(Config{}).Describe(ctx, ""); all != nil {
		t.Fatalf("it knows %v", all)
	}
}

// However many groups there are, so many are described at once, and each by its name.
func TestDescriptionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, nil)
		c.fill(t, describedMost+10)
		if all := c.Describe(t.Context(), ""); len(all) != describedMost {
			t.Errorf("%d groups are described", len(all))
		}
		if one := c.Describe(t.Context(), "g/t/7"); len(one) != 1 || one[0].Group != "g/t/7" || one[0].Dispatcher == nil || len(one[0].Members) != 1 {
			t.Errorf("described as %+v", one)
		}
		if none := c.Describe(t.Context(), "g/none"); len(none) != 0 {
			t.Errorf("what is not there is described as %+v", none)
		}
	})
}
