package websocket

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// utf8s are the texts of series 6, by the number of the first case that has them.
var utf8s = []struct {
	id    string
	texts []string
	valid bool
}{
	{"6.2", []string{"Hello-\u00b5@\u00df\u00f6\u00e4\u00fc\u00e0\u00e1-UTF-8!!"}, true},
	{"6.3", []string{"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80\x65\x64\x69\x74\x65\x64"}, false},
	{"6.4", []string{"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xf4\x90\x80\x80\x65\x64\x69\x74\x65\x64"}, false},
	{"6.5", []string{"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5"}, true},
	{"6.6, cut", []string{"\xce", "\xce\xba\xe1", "\xce\xba\xe1\xbd", "\xce\xba\xe1\xbd\xb9\xcf", "\xce\xba\xe1\xbd\xb9\xcf\x83\xce", "\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce"}, false},
	{"6.6, whole", []string{"\xce\xba", "\xce\xba\xe1\xbd\xb9", "\xce\xba\xe1\xbd\xb9\xcf\x83", "\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc", "\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5"}, true},
	{"6.7", []string{"\xc2\x80", "\xe0\xa0\x80", "\xf0\x90\x80\x80"}, true},
	{"6.8", []string{"\xf8\x88\x80\x80\x80", "\xfc\x84\x80\x80\x80\x80"}, false},
	{"6.9", []string{"\x7f", "\xdf\xbf", "\xef\xbf\xbf", "\xf4\x8f\xbf\xbf"}, true},
	{"6.10", []string{"\xf7\xbf\xbf\xbf", "\xfb\xbf\xbf\xbf\xbf", "\xfd\xbf\xbf\xbf\xbf\xbf"}, false},
	{"6.11, characters", []string{"\xed\x9f\xbf", "\xee\x80\x80", "\xef\xbf\xbd", "\xf4\x8f\xbf\xbf"}, true},
	{"6.11.5", []string{"\xf4\x90\x80\x80"}, false},
	{"6.12", []string{"\x80", "\xbf", "\x80\xbf", "\x80\xbf\x80", "\x80\xbf\x80\xbf", "\x80\xbf\x80\xbf\x80", "\x80\xbf\x80\xbf\x80\xbf", continuations()}, false},
	{"6.13", []string{lonely(0xc0, 0xdf), lonely(0xe0, 0xef), lonely(0xf0, 0xf7), lonely(0xf8, 0xfb), lonely(0xfc, 0xfd)}, false},
	{"6.14", []string{"\xc0", "\xe0\x80", "\xf0\x80\x80", "\xf8\x80\x80\x80", "\xfc\x80\x80\x80\x80", "\xdf", "\xef\xbf", "\xf7\xbf\xbf", "\xfb\xbf\xbf\xbf", "\xfd\xbf\xbf\xbf\xbf"}, false},
	{"6.15", []string{"\xc0\xe0\x80\xf0\x80\x80\xf8\x80\x80\x80\xfc\x80\x80\x80\x80\xdf\xef\xbf\xf7\xbf\xbf\xfb\xbf\xbf\xbf\xfd\xbf\xbf\xbf\xbf"}, false},
	{"6.16", []string{"\xfe", "\xff", "\xfe\xfe\xff\xff"}, false},
	{"6.17", []string{"\xc0\xaf", "\xe0\x80\xaf", "\xf0\x80\x80\xaf", "\xf8\x80\x80\x80\xaf", "\xfc\x80\x80\x80\x80\xaf"}, false},
	{"6.18", []string{"\xc1\xbf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\xf8\x87\xbf\xbf\xbf", "\xfc\x83\xbf\xbf\xbf\xbf"}, false},
	{"6.19", []string{"\xc0\x80", "\xe0\x80\x80", "\xf0\x80\x80\x80", "\xf8\x80\x80\x80\x80", "\xfc\x80\x80\x80\x80\x80"}, false},
	{"6.20", []string{"\xed\xa0\x80", "\xed\xad\xbf", "\xed\xae\x80", "\xed\xaf\xbf", "\xed\xb0\x80", "\xed\xbe\x80", "\xed\xbf\xbf"}, false},
	{"6.21", []string{"\xed\xa0\x80\xed\xb0\x80", "\xed\xa0\x80\xed\xbf\xbf", "\xed\xad\xbf\xed\xb0\x80", "\xed\xad\xbf\xed\xbf\xbf", "\xed\xae\x80\xed\xb0\x80", "\xed\xae\x80\xed\xbf\xbf", "\xed\xaf\xbf\xed\xb0\x80", "\xed\xaf\xbf\xed\xbf\xbf"}, false},
	{"6.22", noncharacters(), true},
	{"6.23", []string{"\xef\xbf\xb9", "\xef\xbf\xba", "\xef\xbf\xbb", "\xef\xbf\xbc", "\xef\xbf\xbd", "\xef\xbf\xbe", "\xef\xbf\xbf"}, true},
}

// continuations are all bytes that continue a character, without one.
func continuations() string {
	var b []byte
	for i := byte(0x80); i <= 0xbf; i++ {
		b = append(b, i)
	}
	return string(b)
}

// lonely are bytes that begin characters, none of which goes on.
func lonely(from, to byte) string {
	var b []byte
	for i := from; i <= to; i++ {
		b = append(b, i, ' ')
	}
	return string(b)
}

// noncharacters are the last two of each plane.
func noncharacters() (all []string) {
	for plane := range rune(17) {
		all = append(all, string(plane<<16|0xfffe), string(plane<<16|0xffff))
	}
	return all
}

// Series 6. Text that is no UTF-8 ends the connection as soon as that can be known.
func (c carrier) utf8() (all []row) {
	for _, of := range utf8s {
		for i, s := range of.texts {
			r := numbered(of.id, i+1, row{})
			payload := `"` + s + `"`
			content := func() []byte {
				return fmt.Appendf(nil, `{"publish":{"id":1,"topic":%q,"payload":%s}}`, topicOf(r.id), payload)
			}
			if of.valid {
				r.payload = []byte(payload)
			} else {
				r.status = statusBadData
			}
			r.parts = [][]byte{frame(fin|opText, content())}
			all = append(all, r)
			r.id += ", by bytes"
			r.parts = fragments(opText, content(), 1)
			all = append(all, r)
		}
	}
	begins := []byte(`{"publish":{"id":1,"topic":"websocket/6.4","payload":"` + "\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5")
	return append(all,
		row{id: "6.1.1", parts: [][]byte{frame(fin|opText, nil)}, status: c.emptyStatus()},
		row{id: "6.1.2", parts: [][]byte{frame(opText, nil), frame(opContinuation, nil), frame(fin|opContinuation, nil)}, status: c.emptyStatus()},
		row{id: "6.4.1", parts: [][]byte{frame(opText, begins), frame(opContinuation, []byte("\xf4\x90")), frame(fin|opContinuation, []byte(`edited"}}`))}, status: statusBadData, early: 2},
		row{id: "6.4.2", parts: [][]byte{frame(opText, append(begins, "\xf4"...)), frame(opContinuation, []byte("\x90")), frame(fin|opContinuation, []byte(`"}}`))}, status: statusBadData, early: 2},
	)
}

// The table says what is UTF-8 as Go does, and has all of the suite's sixties.
func TestTheTextsOfTheTable(t *testing.T) {
	n := 0
	for _, of := range utf8s {
		for _, s := range of.texts {
			n++
			if utf8.ValidString(s) != of.valid || strings.ContainsAny(s, "\"\\") {
				t.Errorf("%s: %q", of.id, s)
			}
		}
	}
	if n < 110 {
		t.Errorf("%d texts", n)
	}
	if c := (carrier{text: true}); string(c.content(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 7})) == "" {
		t.Error("no text")
	}
}
