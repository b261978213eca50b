package run

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func record() *rapid.Generator[Record] {
	return rapid.Custom(func(t *rapid.T) Record {
		r := Record{
			PublishedAt: rapid.Uint64().Draw(t, "published"),
			ExpiresAt:   rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64()).Draw(t, "expires"),
			Traceparent: rapid.StringN(0, 20, 55).Draw(t, "trace"),
			Body:        rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(t, "body"),
		}
		copy(r.ID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		if rapid.Bool().Draw(t, "ordered") {
			r.Producer = [16]byte{byte(rapid.IntRange(0, 3).Draw(t, "producer"))}
			r.ProducerSeq = rapid.Uint64Range(1, math.MaxUint64).Draw(t, "producer seq")
		}
		return r
	})
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(record(), 0, 20).Draw(t, "records")
		packed := Pack([]byte("front"), want)
		got, err := unpack(packed[len("front"):])
		if err != nil {
			t.Fatal(err)
		}
		equal := cmp.Comparer(bytes.Equal)
		if diff := cmp.Diff(want, got, equal); diff != "" && len(want)+len(got) > 0 {
			t.Fatal(diff)
		}
	})
}

func TestSizeOfTypicalRecord(t *testing.T) {
	records := make([]Record, 64)
	for i := range records {
		records[i] = Record{PublishedAt: 1_760_000_000_000_000 + uint64(i)*10, Body: make([]byte, 256), Producer: [16]byte{1}, ProducerSeq: uint64(i) + 1000}
	}
	// id 16, body's length 2, flags 1, time 2, producer 3: what a record costs beyond its body.
	if got := len(Pack(nil, records)) - 64*256; got > 64*25+32 {
		t.Errorf("64 records cost %d bytes beyond their bodies", got)
	}
}

func TestCutAndLongRunsAreRefused(t *testing.T) {
	packed := Pack(nil, []Record{{Body: []byte("abc"), Traceparent: "t", ExpiresAt: 9, Producer: [16]byte{1}, ProducerSeq: 2}, {Body: []byte("d")}})
	for n := range packed {
		if _, err := unpack(packed[:n]); !errors.Is(err, ErrBad) {
			t.Errorf("%d of %d bytes: %v", n, len(packed), err)
		}
	}
	if _, err := unpack(append(packed, 0)); !errors.Is(err, ErrBad) {
		t.Errorf("a byte too many: %v", err)
	}
	if _, err := unpack(make([]byte, MaxPacked+1)); !errors.Is(err, ErrBad) {
		t.Errorf("too long: %v", err)
	}
}

func TestEachStops(t *testing.T) {
	seen := 0
	if err := Each(Pack(nil, make([]Record, 9)), func(int, *Record) bool { seen++; return seen < 4 }); err != nil || seen != 4 {
		t.Errorf("saw %d, %v", seen, err)
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(Pack(nil, nil))
	f.Add(Pack(nil, []Record{{Body: []byte("abc"), Traceparent: "t", ExpiresAt: 9, Producer: [16]byte{1}, ProducerSeq: 2}, {Body: []byte("d")}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		records, err := unpack(b)
		if err != nil {
			if !errors.Is(err, ErrBad) {
				t.Fatal(err)
			}
			return
		}
		again, err := unpack(Pack(nil, records))
		if err != nil {
			t.Fatalf("packed again: %v", err)
		}
		// A flag may stand before a zero: what it says is the same.
		for i := range records {
			if records[i].ProducerSeq == 0 {
				records[i].Producer = [16]byte{}
			}
		}
		if diff := cmp.Diff(records, again); diff != "" {
			t.Fatal(diff)
		}
	})
}

// unpack is the inverse of Pack. Bodies lie in packed.
func unpack(packed []byte) ([]Record, error) {
	var all []Record
	err := Each(packed, func(_ int, r *Record) bool {
		all = append(all, *r)
		return true
	})
	return all, err
}
