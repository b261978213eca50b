package kept

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// opened opens so many slots.
func opened(a *Accounts, slots int) *Accounts {
	for slot := range slots {
		a.Open(uint32(slot))
	}
	return a
}

// Whatever connections take and give back, each, each client and each address stays within its
// bound, what a connection has for itself always fits, and nothing is left once all have given
// everything back, whichever of them end on the way and others begin in their slots.
func TestBoundsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const slots, loops, connection, ofClient, ofAddress = 6, 2, 1 << 20, 2 << 20, 2500 << 10
		clients, addresses := NewHolders(ofClient), NewHolders(ofAddress)
		named := func(slot, of uint32) string {
			if slot%of == 0 {
				return "" // of none
			}
			return fmt.Sprint(slot % of)
		}
		var all [loops]*Accounts
		for i := range all {
			all[i] = New(Config{
				Connection: connection, Loop: 4 << 20, Clients: clients, Addresses: addresses,
				Client: func(slot uint32) string { return named(slot, 4) }, Address: func(slot uint32) string { return named(slot, 3) },
			})
			opened(all[i], slots)
		}
		var has [loops][slots]int
		check := func() {
			beyond := map[string]int64{}
			for i, a := range all {
				sum := int64(0)
				for slot := range has[i] {
					n := a.Of(uint32(slot))
					if n != int64(has[i][slot]) || n > connection {
						t.Fatalf("slot %d has %d, %d are counted, %d at most", slot, has[i][slot], n, connection)
					}
					sum += n
					beyond["client "+named(uint32(slot), 4)] += max(n-Own, 0)
					beyond["address "+named(uint32(slot), 3)] += max(n-Own, 0)
				}
				if admitted := int64(0); a.cfg.Loop > 0 {
					for slot := range has[i] {
						admitted += a.at(uint32(slot)).admitted()
					}
					if a.admitted != admitted || admitted != sum {
						t.Fatalf("%d are held against others, and %d are admitted of %d", a.admitted, admitted, sum)
					}
				}
				if a.Bytes() != sum {
					t.Fatalf("%d of a loop are counted, and there are %d", a.Bytes(), sum)
				}
			}
			for who, n := range beyond {
				if strings.HasPrefix(who, "client") && len(who) > 7 && n > ofClient || strings.HasPrefix(who, "address") && len(who) > 8 && n > ofAddress {
					t.Fatalf("%q has %d beyond what its connections have for themselves", who, n)
				}
			}
		}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			i, slot := rapid.IntRange(0, loops-1).Draw(t, "loop"), rapid.IntRange(0, slots-1).Draw(t, "slot")
			n := rapid.IntRange(1, 400_000).Draw(t, "bytes")
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0, 1:
				n = min(n, has[i][slot])
				all[i].Charge(uint32(slot), -n)
				has[i][slot] -= n
			case 2:
				all[i].Charge(uint32(slot), -has[i][slot])
				has[i][slot] = 0
				all[i].Open(uint32(slot))
			default:
				if all[i].Fits(uint32(slot), n) {
					all[i].Charge(uint32(slot), n)
					has[i][slot] += n
				} else if has[i][slot]+n <= Own {
					t.Fatalf("%d does not fit beside %d", n, has[i][slot])
				}
			}
			check()
		}
		for i, a := range all {
			for slot := range has[i] {
				a.Charge(uint32(slot), -has[i][slot])
			}
		}
		for _, s := range []*Holders{clients, addresses} {
			for i := range s.granted {
				if n := s.granted[i].Load(); n != 0 {
					t.Fatalf("%d bytes are granted to nobody", n)
				}
			}
		}
	})
}

// What is in windows may take a part of the bound alone, and who has more than its own is bounded
// by what the loop has.
func TestPartsAndLoop(t *testing.T) {
	a := opened(New(Config{Connection: 400_000, Windows: 200_000, Loop: 500_000}), 4)
	if a.Charge(1, 200_001); a.WindowsFit(1) || !a.Fits(1, 1) || a.Fits(1, 200_000) {
		t.Fatal("the bounds of windows and of the whole are not told apart")
	}
	if !a.Fits(2, 299_999) {
		t.Fatal("the loop has no room")
	}
	a.Charge(2, 299_999)
	if a.Fits(3, Own+1) || !a.Fits(3, Own) {
		t.Fatal("beyond the loop's bound a connection has its own, and no more")
	}
}

// What is charged though it does not fit is held against its own connection alone, until that has
// given it back.
func TestWhatDoesNotFitIsHeldAgainstNobodyElse(t *testing.T) {
	a := opened(New(Config{Connection: 1 << 20, Loop: 1 << 20}), 3)
	if a.Charge(1, 8<<20); a.Fits(1, 1) || a.WindowsFit(1) || !a.Fits(2, 1<<19) || a.Bytes() != 8<<20 {
		t.Fatalf("%d that did not fit are held against others, or not against their own connection", a.Bytes())
	}
	a.Charge(2, 1<<19)
	if a.Charge(1, -8<<20); !a.Fits(1, 1<<19) || a.Fits(1, 1<<19+1) {
		t.Fatal("what was given back can't be had, or more")
	}
}

// Of a client that has no room left, none of its connections gets more than its own, and another
// client's does.
func TestAClientIsBounded(t *testing.T) {
	a := opened(New(Config{Clients: NewHolders(1 << 20), Client: func(slot uint32) string { return fmt.Sprint(slot / 10) }}), 11)
	n := 0
	for slot := uint32(0); slot < 10 && a.Fits(slot, 300_000); slot++ {
		a.Charge(slot, 300_000)
		n++
	}
	if n != 4 || a.Fits(9, Own+1) || !a.Fits(9, Own) || !a.Fits(10, 300_000) {
		t.Fatalf("%d connections have more than their own", n)
	}
	if a.Charge(0, -300_000); !a.Fits(9, Own+1) {
		t.Fatal("what one gave back can't be had by another")
	}
}

// A client that takes another id for each connection is bounded by its address; other addresses,
// and those whose bytes count for none, have room. Its address is asked for once for a connection,
// however often there is no room.
func TestAnAddressIsBounded(t *testing.T) {
	asked := map[uint32]int{}
	a := opened(New(Config{
		Clients: NewHolders(1 << 30), Client: func(slot uint32) string { return fmt.Sprint("id ", slot) },
		Addresses: NewHolders(1 << 20), Address: func(slot uint32) string {
			asked[slot]++
			return []string{"192.0.2.1", "192.0.2.2", ""}[slot/10]
		},
	}), 30)
	n := 0
	for slot := uint32(0); slot < 10 && a.Fits(slot, 300_000); slot++ {
		a.Charge(slot, 300_000)
		n++
	}
	if n != 4 || a.Fits(9, Own+1) || a.Fits(9, Own+1) || !a.Fits(9, Own) || !a.Fits(10, 300_000) {
		t.Fatalf("%d connections have more than their own", n)
	}
	for slot := uint32(20); slot < 30; slot++ {
		if !a.Fits(slot, 300_000) {
			t.Fatalf("number %d of those that count for no address has no room", slot)
		}
		a.Charge(slot, 300_000)
	}
	if asked[9] != 1 || asked[0] != 1 {
		t.Fatalf("the address is asked for %d times", asked[9])
	}
	if a.Charge(0, -300_000); !a.Fits(9, Own+1) {
		t.Fatal("what one gave back can't be had by another")
	}
}

// Who is in a slot now counts for its own address, and not for that of whoever was there before.
func TestASlotIsOpenedAnew(t *testing.T) {
	at := "192.0.2.1"
	a := opened(New(Config{Addresses: NewHolders(1 << 20), Address: func(uint32) string { return at }}), 2)
	a.Fits(0, 1<<20)
	a.Charge(0, 1<<20)
	if a.Fits(1, 1<<20) {
		t.Fatal("the address is not bounded")
	}
	a.Charge(0, -1<<20)
	at = "192.0.2.2"
	a.Open(0)
	if !a.Fits(0, 1<<20) {
		t.Fatal("there is no room")
	}
	a.Charge(0, 1<<20)
	if at = "192.0.2.1"; !a.Fits(1, 1<<20) {
		t.Fatal("the slot counts for an address that has left it")
	}
}

// Windows have a half of what a loop, a client and an address may have, so that others, and the
// client itself, have room for the rest.
func TestWindowsLeaveRoom(t *testing.T) {
	a := opened(New(Config{Loop: 1 << 20}), 3)
	for a.WindowsFit(1) {
		a.Charge(1, 4<<10)
	}
	if n := a.Of(1); n > 1<<19+4<<10 || !a.Fits(2, 1<<18) {
		t.Fatalf("windows have %d of a loop, and others find no room", n)
	}
	ann := func(uint32) string { return "ann" }
	for what, cfg := range map[string]Config{"client": {Clients: NewHolders(1 << 20), Client: ann}, "address": {Addresses: NewHolders(1 << 20), Address: ann}} {
		a = opened(New(cfg), 3)
		for a.WindowsFit(1) {
			a.Charge(1, 4<<10)
		}
		if n := a.Of(1); n < 1<<19 || n > 1<<19+Own+4<<10 || !a.Fits(2, 1<<18) {
			t.Fatalf("windows have %d of the %s's, and it finds no room", n, what)
		}
	}
}
