package server

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// stream is rows in COPY's binary format.
func stream(rows [][][]byte) []byte {
	b := append(slices.Clone(copySignature), make([]byte, 8)...)
	for _, row := range rows {
		b = binary.BigEndian.AppendUint16(b, uint16(len(row)))
		for _, v := range row {
			if v == nil {
				b = binary.BigEndian.AppendUint32(b, 1<<32-1)
				continue
			}
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
		}
	}
	return append(b, 0xff, 0xff)
}

// taken is what a stream has, cut before each of these places.
func taken(b []byte, cuts []int) (rows [][][]byte, ended bool, err error) {
	c := &copied{visit: func(values [][]byte) error {
		var row [][]byte
		for _, v := range values {
			row = append(row, bytes.Clone(v))
		}
		rows = append(rows, row)
		return nil
	}}
	from := 0
	for _, to := range append(slices.Clone(cuts), len(b)) {
		piece := bytes.Clone(b[from:to])
		if _, err = c.Write(piece); err != nil {
			return rows, false, err
		}
		clear(piece) // it is the connection's again
		from = to
	}
	return rows, c.ended, nil
}

// text of rows, in which NULL is not an empty value.
func text(rows [][][]byte) (s string) {
	for _, row := range rows {
		s += fmt.Sprintf("%#v\n", row)
	}
	return s
}

func TestRowsOfACopyCutAnywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(rapid.Just([]byte(nil)), rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 30), func(b []byte) []byte { return append([]byte{}, b...) }))
		rows := rapid.SliceOfN(rapid.SliceOfN(value, 1, 5), 0, 20).Draw(t, "rows")
		b := stream(rows)
		cuts := rapid.SliceOfN(rapid.IntRange(0, len(b)), 0, 30).Draw(t, "cuts")
		slices.Sort(cuts)
		got, ended, err := taken(b, cuts)
		if err != nil || !ended || text(got) != text(rows) {
			t.Fatalf("%v, ended %t, %v, want %v", got, ended, err, rows)
		}
		whole := rapid.IntRange(0, len(b)-1).Draw(t, "whole")
		if _, ended, err := taken(b[:whole], nil); ended || err != nil {
			t.Fatalf("%d of %d bytes: ended %t, %v", whole, len(b), ended, err)
		}
	})
}

func TestWhatIsNoCopyIsRefused(t *testing.T) {
	t.Parallel()
	good := stream([][][]byte{{[]byte("a")}})
	after := len(copySignature) + 8
	for name, b := range map[string][]byte{
		"text":             []byte("1\ta\n"),
		"critical flag":    append(append(slices.Clone(copySignature), 0, 1, 0, 0, 0, 0, 0, 0), good[after:]...),
		"negative columns": append(slices.Clone(good[:after]), 0xff, 0xfe),
		"negative size":    append(slices.Clone(good[:after]), 0, 1, 0xff, 0xff, 0xff, 0xfe),
		"goes on":          append(slices.Clone(good), 0),
	} {
		if rows, _, err := taken(b, nil); err == nil {
			t.Errorf("%s was taken: %v", name, rows)
		}
	}
}

func FuzzCopy(f *testing.F) {
	f.Add(stream(nil), 0)
	f.Add(stream([][][]byte{{[]byte("room/1"), nil}, {{}}}), 21)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		whole, ended, err := taken(b, nil)
		if cut < 0 || cut > len(b) {
			return
		}
		rows, endedToo, errToo := taken(b, []int{cut})
		if text(whole) != text(rows) || ended != endedToo || (err == nil) != (errToo == nil) {
			t.Errorf("whole: %v %t %v; cut at %d: %v %t %v", whole, ended, err, cut, rows, endedToo, errToo)
		}
	})
}
