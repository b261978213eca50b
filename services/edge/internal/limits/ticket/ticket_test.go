package ticket

import (
	"bytes"
	"sync"
	"sync/atomic"
	"testing"
)

const now = 1_700_000_000_000_000

func shown(secret []byte, router string) []byte { return append(bytes.Clone(secret), router...) }

func TestATicketIsGoodOnce(t *testing.T) {
	var b Book
	secret := b.Issue("router-1", now)
	if len(secret) != Size {
		t.Fatalf("%d bytes", len(secret))
	}
	for name, wrong := range map[string][]byte{
		"nothing": nil, "no router": secret, "another router": shown(secret, "router-2"), "another ticket": shown(make([]byte, Size), "router-1"),
	} {
		if b.Redeem(wrong, now) {
			t.Errorf("%s was good", name)
		}
	}
	if !b.Redeem(shown(secret, "router-1"), now+1) {
		t.Error("it was not good")
	}
	if b.Redeem(shown(secret, "router-1"), now+1) {
		t.Error("it was good twice")
	}
}

func TestATicketExpires(t *testing.T) {
	var b Book
	secret := b.Issue("router-1", now)
	if b.Redeem(shown(secret, "router-1"), now+uint64(Valid.Microseconds())) {
		t.Error("it was good when its time was over")
	}
}

func TestTheBookIsBounded(t *testing.T) {
	var b Book
	given := 0
	for range 20 * places {
		if b.Issue("router-1", now) != nil {
			given++
		}
	}
	if given > places || given < places/2 {
		t.Errorf("%d tickets were given, there is room for %d", given, places)
	}
	if b.Issue("router-1", now+uint64(Valid.Microseconds())) == nil {
		t.Error("what expired takes room")
	}
}

func TestOnlyOneOfManyGetsIn(t *testing.T) {
	var b Book
	for range 100 {
		var in atomic.Int32
		var wg sync.WaitGroup
		secret := b.Issue("router-1", now)
		for range 4 {
			wg.Go(func() {
				if b.Redeem(shown(secret, "router-1"), now) {
					in.Add(1)
				}
			})
		}
		wg.Wait()
		if in.Load() != 1 {
			t.Fatalf("%d got in", in.Load())
		}
	}
}
