package wsframe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const most = 1 << 20

// frame is one as a client sends it.
func frame(first byte, payload []byte) []byte {
	b := []byte{first, 0x80}
	switch n := len(payload); {
	case n <= MaxControl:
		b[1] |= byte(n)
	case n < 1<<16:
		b[1] |= 126
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	default:
		b[1] |= 127
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	mask := [4]byte{0x37, 0xfa, 0x21, 0x3d}
	b = append(b, mask[:]...)
	for i, c := range payload {
		b = append(b, c^mask[i%4])
	}
	return b
}

const fin = 0x80

// said is what events come to, one string for each message or control frame.
func said(r *Reader, b []byte, cuts func(n int) int) (all []string, err error) {
	var message, rest []byte
	for len(b) > 0 {
		n := cuts(len(b))
		rest, b = append(rest, b[:n]...), b[n:]
		for {
			e, used, v := r.Next(rest, most)
			if v != nil {
				return all, v
			}
			rest = rest[used:]
			switch e.Kind {
			case Data:
				if message = append(message, e.Payload...); e.Last {
					all, message = append(all, string(rune('0'+e.Op))+string(message)), nil
				}
				continue
			case Pinged:
				all = append(all, "ping "+string(e.Payload))
				continue
			case Ponged:
				all = append(all, "pong "+string(e.Payload))
				continue
			case Closed:
				return append(all, "close "+string(binary.BigEndian.AppendUint16(nil, e.Status))+string(e.Payload)), nil
			}
			break
		}
		rest = bytes.Clone(rest)
	}
	return all, nil
}

func whole(n int) int { return n }

func TestFramesAreCutWhereverReadsEnd(t *testing.T) {
	t.Parallel()
	long := bytes.Repeat([]byte("0123456789"), 7000)
	stream := slices.Concat(
		frame(fin|1, []byte("hello")), frame(2, []byte("a")), frame(fin|9, []byte("now")), frame(0, nil), frame(fin|10, nil), frame(fin, []byte("bc")),
		frame(fin|2, long[:126]), frame(fin|2, long[:65535]), frame(fin|2, long), frame(fin|2, nil), frame(fin|8, []byte("\x03\xe8bye")),
	)
	want := []string{"1hello", "ping now", "pong ", "2abc", "2" + string(long[:126]), "2" + string(long[:65535]), "2" + string(long), "2", "close \x03\xe8bye"}
	rnd := rand.New(rand.NewPCG(1, 2))
	for name, cuts := range map[string]func(int) int{
		"whole": whole, "bytes": func(int) int { return 1 }, "random": func(n int) int { return min(n, 1+rnd.IntN(400)) },
	} {
		var r Reader
		got, err := said(&r, bytes.Clone(stream), cuts)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %d events, %v", name, len(got), err)
		}
		if !r.Idle() {
			t.Errorf("%s: not idle at the end", name)
		}
	}
}

func TestWhatNoFrameMayBe(t *testing.T) {
	t.Parallel()
	unmasked := []byte{fin | 1, 2, 'h', 'i'}
	for name, c := range map[string]struct {
		b    []byte
		want *Violation
	}{
		"reserved bit 1":             {frame(fin|0x40|1, nil), errReserved},
		"reserved bit 2":             {frame(fin|0x20|2, nil), errReserved},
		"reserved bit 3":             {frame(fin|0x10|9, nil), errReserved},
		"opcode 3":                   {frame(fin|3, nil), errOpcode},
		"opcode 7":                   {frame(fin|7, nil), errOpcode},
		"opcode 11":                  {frame(fin|11, nil), errOpcode},
		"opcode 15":                  {frame(fin|15, nil), errOpcode},
		"unmasked":                   {unmasked, errUnmasked},
		"fragmented ping":            {frame(9, nil), errControl},
		"long ping":                  {frame(fin|9, make([]byte, 126)), errControl},
		"long close":                 {frame(fin|8, make([]byte, 126)), errControl},
		"continues nothing":          {frame(fin, []byte("x")), errContinuation},
		"continues an ended message": {slices.Concat(frame(1, nil), frame(fin, nil), frame(0, nil)), errContinuation},
		"interrupted":                {slices.Concat(frame(1, nil), frame(fin|1, nil)), errInterrupted},
		"16 bits for 125":            {[]byte{fin | 2, 0x80 | 126, 0, 125, 0, 0, 0, 0}, errLength},
		"64 bits for 65535":          {[]byte{fin | 2, 0x80 | 127, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0}, errLength},
		"negative length":            {[]byte{fin | 2, 0x80 | 127, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, errLength},
		"too long at once":           {[]byte{fin | 2, 0x80 | 127, 0, 0, 0, 0, 0, 0x10, 0, 1, 0, 0, 0, 0}, errTooLarge},
		"too long in parts":          {slices.Concat(frame(2, make([]byte, most)), frame(fin, []byte("x"))), errTooLarge},
		"close of one byte":          {frame(fin|8, []byte{3}), errCloseLength},
		"close with bad UTF-8":       {frame(fin|8, []byte("\x03\xe8\xff")), errCloseReason},
	} {
		var r Reader
		if _, err := said(&r, c.b, whole); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, status := range []uint16{0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535} {
		var r Reader
		if _, err := said(&r, frame(fin|8, binary.BigEndian.AppendUint16(nil, status)), whole); !errors.Is(err, errCloseStatus) {
			t.Errorf("status %d: %v", status, err)
		}
	}
	for _, status := range []uint16{1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999} {
		var r Reader
		if _, err := said(&r, frame(fin|8, binary.BigEndian.AppendUint16(nil, status)), whole); err != nil {
			t.Errorf("status %d: %v", status, err)
		}
	}
}

func TestWhatAServerSends(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "\x82\x00", 125: "\x82\x7d", 126: "\x82\x7e\x00\x7e", 65535: "\x82\x7e\xff\xff", 65536: "\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00"} {
		if got := AppendHeader(nil, Binary, n); string(got) != want {
			t.Errorf("%d: %q", n, got)
		}
	}
	if got := AppendClose(nil, NoStatus, "x"); string(got) != "\x88\x00" {
		t.Errorf("no status: %q", got)
	}
	if got := AppendClose(nil, Normal, strings.Repeat("é", 100)); len(got) != 2+2+122 || got[1] != 124 {
		t.Errorf("a long reason: %d bytes, %q", len(got), got[:4])
	}
	for why, want := range map[wirev1.Code]uint16{wirev1.Code_CODE_OK: 1000, wirev1.Code_CODE_DRAINING: 1001, wirev1.Code_CODE_BAD_FRAME: 4000 + uint16(wirev1.Code_CODE_BAD_FRAME)} {
		if got := StatusOf(why); got != want {
			t.Errorf("%v: %d", why, got)
		}
	}
	for n := range wirev1.Code_name {
		if s := StatusOf(wirev1.Code(n)); !validStatus(s) {
			t.Errorf("code %d: status %d may not be sent", n, s)
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add(slices.Concat(frame(1, []byte("a")), frame(fin|9, nil), frame(fin, []byte("b"))), uint8(3))
	f.Add(frame(fin|8, []byte("\x03\xe8x")), uint8(1))
	f.Add(frame(fin|2, make([]byte, 300)), uint8(20))
	f.Fuzz(func(t *testing.T, b []byte, cut uint8) {
		var one, many Reader
		a, errA := said(&one, bytes.Clone(b), whole)
		c, errC := said(&many, bytes.Clone(b), func(n int) int { return min(n, int(cut)+1) })
		if !slices.Equal(a, c) || (errA == nil) != (errC == nil) || one != many {
			t.Fatalf("cut at once: %q %v; in parts: %q %v", a, errA, c, errC)
		}
	})
}

func BenchmarkUnmask(b *testing.B) {
	p := make([]byte, 4096)
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		unmask(p, 0x12345678)
	}
}
