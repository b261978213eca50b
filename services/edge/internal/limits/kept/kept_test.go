package kept

import (
	"fmt"
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

// Whatever connections take and give back, each and each client stays within its bound, what a
// connection has for itself always fits, and nothing is left once all have given everything back.
func TestBoundsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const slots, loops, connection, of = 6, 2, 1 << 20, 2 << 20
		clients := NewClients(of)
		var all [loops]*Accounts
		for i := range all {
			all[i] = New(Config{Connection: connection, Loop: 4 << 20, Clients: clients, Name: func(slot uint32) string {
				if slot == 0 {
					return "" // of no client
				}
				return fmt.Sprint(slot % 2)
			}})
			opened(all[i], slots)
		}
		var has [loops][slots]int
		check := func() {
			var beyond [2]int64
			for i, a := range all {
				sum := int64(0)
				for slot := range has[i] {
					n := a.Of(uint32(slot))
					if n != int64(has[i][slot]) || n > connection {
						t.Fatalf("slot %d has %d, %d are counted, %d at most", slot, has[i][slot], n, connection)
					}
					if sum += n; slot > 0 {
						beyond[slot%2] += max(n-Own, 0)
					}
				}
				if a.Bytes() != sum {
					t.Fatalf("%d of a loop are counted, and there are %d", a.Bytes(), sum)
				}
			}
			for i, n := range beyond {
				if n > of {
					t.Fatalf("client %d has %d beyond what its connections have for themselves", i, n)
				}
			}
		}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			i, slot := rapid.IntRange(0, loops-1).Draw(t, "loop"), rapid.IntRange(0, slots-1).Draw(t, "slot")
			n := rapid.IntRange(1, 400_000).Draw(t, "bytes")
			switch {
			case rapid.Bool().Draw(t, "off"):
				n = min(n, has[i][slot])
				all[i].Charge(uint32(slot), -n)
				has[i][slot] -= n
			case all[i].Fits(uint32(slot), n):
				all[i].Charge(uint32(slot), n)
				has[i][slot] += n
			case has[i][slot]+n <= Own:
				t.Fatalf("%d does not fit beside %d", n, has[i][slot])
			}
			check()
		}
		for i, a := range all {
			for slot := range has[i] {
				a.Charge(uint32(slot), -has[i][slot])
			}
		}
		for i := range clients.granted {
			if n := clients.granted[i].Load(); n != 0 {
				t.Fatalf("%d bytes are granted to nobody", n)
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
	a.Charge(2, 299_999)
	if a.Fits(3, Own+1) || !a.Fits(3, Own) {
		t.Fatal("beyond the loop's bound a connection has its own, and no more")
	}
}

// Of a client that has no room left, none of its connections gets more than its own, and another
// client's does.
func TestAClientIsBounded(t *testing.T) {
	a := opened(New(Config{Clients: NewClients(1 << 20), Name: func(slot uint32) string { return fmt.Sprint(slot / 10) }}), 11)
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

// Windows have a half of what a loop and a client may have, so that others, and the client itself,
// have room for the rest.
func TestWindowsLeaveRoom(t *testing.T) {
	a := opened(New(Config{Loop: 1 << 20}), 3)
	for a.WindowsFit(1) {
		a.Charge(1, 4<<10)
	}
	if n := a.Of(1); n > 1<<19+4<<10 || !a.Fits(2, 1<<18) {
		t.Fatalf("windows have %d of a loop, and others find no room", n)
	}
	a = opened(New(Config{Clients: NewClients(1 << 20), Name: func(uint32) string { return "ann" }}), 3)
	for a.WindowsFit(1) {
		a.Charge(1, 4<<10)
	}
	if n := a.Of(1); n < 1<<19 || n > 1<<19+Own+4<<10 || !a.Fits(2, 1<<18) {
		t.Fatalf("windows have %d of a client's, and it finds no room", n)
	}
}
