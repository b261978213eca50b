package position

import (
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Of all that one connection has delivered and a handler refused, what lies too far back is given
// up, and told.
func TestWhatIsOwedTooLong(t *testing.T) {
	c := &Cursor{}
	for _, seq := range []uint64{3, 5} {
		if given, some := c.Failed(seq); some {
			t.Fatalf("gave up %v", given)
		}
	}
	c.Succeeded(6)
	if c.Position() != 2 || !c.Done.Has(6) || c.Done.Has(5) {
		t.Fatalf("resumes after %d", c.Position())
	}
	if given, some := c.Failed(3 + MaxOwed); some {
		t.Fatalf("gave up %v at the bound", given)
	}
	if given, some := c.Failed(4 + MaxOwed); !some || given != (Span{3, 3}) || c.Position() != 4 || !c.Done.Has(3) {
		t.Fatalf("gave up %v, %v, resumes after %d", given, some, c.Position())
	}
	if given, some := c.Failed(100 + MaxOwed); !some || given != (Span{5, 99}) || c.Position() != 3+MaxOwed-1 || !c.Done.Has(99) || c.Done.Has(100) {
		t.Fatalf("gave up %v, %v, resumes after %d", given, some, c.Position())
	}
	c.Succeeded(3 + MaxOwed)
	c.Progress(&wirev1.Progress{From: 4 + MaxOwed, To: 100 + MaxOwed})
	if c.Position() != 100+MaxOwed || !c.Owed.Empty() {
		t.Fatalf("resumes after %d, owed %v", c.Position(), c.Owed)
	}
}

// A topic whose epoch is named for the first time has lost nothing; late words of an earlier epoch
// change nothing; a later one begins anew.
func TestEpochsThatAreNamed(t *testing.T) {
	type place struct{ epoch, seq uint64 }
	for name, x := range map[string]struct {
		epoch, high uint64
		p           *wirev1.Progress
		restarted   bool
		want        place
	}{
		"the first word, nothing had":             {0, 0, &wirev1.Progress{Epoch: 7}, false, place{7, 0}},
		"the first word, something had":           {0, 5, &wirev1.Progress{Epoch: 7}, false, place{7, 5}},
		"the first word, and a log that is anew":  {0, 5, &wirev1.Progress{Epoch: 7, Code: wirev1.Code_CODE_EPOCH_CHANGED}, true, place{7, 0}},
		"anew, and nothing had":                   {0, 0, &wirev1.Progress{Epoch: 7, Code: wirev1.Code_CODE_EPOCH_CHANGED}, false, place{7, 0}},
		"the same":                                {7, 5, &wirev1.Progress{Epoch: 7, From: 6, To: 8}, false, place{7, 8}},
		"an earlier one":                          {7, 5, &wirev1.Progress{Epoch: 6, From: 6, To: 8}, false, place{7, 5}},
		"none":                                    {7, 5, &wirev1.Progress{From: 6, To: 8}, false, place{7, 8}},
		"a later one, with seqs of whichever log": {7, 5, &wirev1.Progress{Epoch: 8, From: 6, To: 8}, true, place{8, 0}},
		"seqs that were had":                      {7, 5, &wirev1.Progress{Epoch: 7, From: 1, To: 3}, false, place{7, 5}},
	} {
		c := &Cursor{}
		c.Restart(x.epoch, x.high)
		restarted := c.Progress(x.p)
		if got := (place{c.Epoch, c.Position()}); restarted != x.restarted || got != x.want {
			t.Errorf("%s: restarted %v, at %v, want %v, %v", name, restarted, got, x.restarted, x.want)
		}
		if x.p.GetTo() > 0 && !restarted && c.Epoch != 0 && x.p.GetEpoch() != 6 && !c.Done.Has(x.p.GetTo()) {
			t.Errorf("%s: %d is waited for", name, x.p.GetTo())
		}
		if x.want.seq > 0 && c.Fresh() {
			t.Errorf("%s: fresh %v, %v", name, c.Fresh(), c.Done.spans)
		}
	}
}
