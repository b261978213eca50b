package acked

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever groups ACK, expires and is dropped: the bound holds, what is counted is what is there,
// each group has its newest ACKs, and none of them is forgotten before its time for a group that
// has less than half as many as another.
func TestGroupsWithFewACKsKeepThem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const groups = 6
		most := rapid.IntRange(0, 100).Draw(t, "most")
		counted := 0
		b := NewBook(most*Bytes, func(bytes int) { counted += bytes })
		var all [groups]Group
		var want [groups][]ack
		now := b.began
		for i := range rapid.IntRange(1, 400).Draw(t, "steps") {
			k := rapid.IntRange(0, groups-1).Draw(t, "group")
			switch rapid.IntRange(0, 19).Draw(t, "op") {
			case 0:
				b.Drop(&all[k])
				want[k] = nil
			case 1:
				now = now.Add(time.Duration(rapid.Int64Range(0, int64(2*For)).Draw(t, "pass")))
				b.Expire(&all[k], now)
				want[k] = slices.DeleteFunc(want[k], func(a ack) bool { return now.Sub(b.began)-a.at >= For })
			default:
				a := ack{"t", 1, uint64(i), now.Sub(b.began)}
				want[k] = append(want[k], a)
				b.Add(&all[k], a.topic, a.epoch, a.seq, now)
			}
			largest, total := 0, 0
			for _, w := range want {
				largest = max(largest, len(w))
			}
			for k := range all {
				n := all[k].Len()
				total += n
				if forgotten := len(want[k]) - n; forgotten > 1 || forgotten == 1 && 2*len(want[k]) <= largest {
					t.Fatalf("%d of %d are forgotten of a group where another has %d", forgotten, len(want[k]), largest)
				}
				want[k] = want[k][len(want[k])-n:]
				if !slices.Equal(all[k].all[all[k].from:], want[k]) {
					t.Fatalf("remembered are %v, want %v", all[k].all[all[k].from:], want[k])
				}
				if n > 0 && !b.Oldest(&all[k]).Equal(b.began.Add(want[k][0].at)) {
					t.Fatalf("the oldest is of %v, want %v", b.Oldest(&all[k]), want[k][0].at)
				}
			}
			if b.Used() != total*Bytes || counted != b.Used() || most > 0 && total > most {
				t.Fatalf("%d bytes are used, %d counted, for %d ACKs of %d at most", b.Used(), counted, total, most)
			}
		}
	})
}

// One group has no more than its own bound, where there is none for all of them.
func TestAGroupIsBounded(t *testing.T) {
	b := NewBook(0, func(int) {})
	var g Group
	for seq := range uint64(2*most + 10) {
		b.Add(&g, "t", 1, seq, time.Time{})
	}
	seqs := g.Seqs()[0].GetSeqs()
	if len(seqs) != most || seqs[0] != most+10 {
		t.Errorf("%d are remembered, from %d on", len(seqs), seqs[0])
	}
	if cap(g.all) > 3*most {
		t.Errorf("room for %d ACKs, of %d", cap(g.all), most)
	}
	if b.Drop(&g); b.Used() != 0 || cap(g.all) != 0 {
		t.Errorf("%d bytes are used, room for %d", b.Used(), cap(g.all))
	}
}

func TestSeqsComeByLog(t *testing.T) {
	b := NewBook(0, func(int) {})
	var g Group
	for i, l := range []struct {
		topic string
		epoch uint64
	}{{"a", 1}, {"b", 1}, {"a", 2}, {"a", 1}} {
		b.Add(&g, l.topic, l.epoch, uint64(i), time.Time{})
	}
	all := g.Seqs()
	if len(all) != 3 || all[0].GetTopic() != "a" || all[0].GetEpoch() != 1 || !slices.Equal(all[0].GetSeqs(), []uint64{0, 3}) || all[2].GetEpoch() != 2 {
		t.Errorf("remembered are %v", all)
	}
}
