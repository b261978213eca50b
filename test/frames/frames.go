// Package frames measures what a Message frame could be made of: protobuf by the generated code,
// the same bytes by hand, FlatBuffers, and a fixed layout. Nothing of the mesh imports it;
// docs/adr/0005-message-frame.md has the numbers, and why the mesh uses what it does.
package frames

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Header of a message.
type Header struct{ Key, Value []byte }

// View is a decoded message whose slices are parts of the frame. Headers is reused by the next
// decoding into the View, and so is Subs.
type View struct {
	Topic, Payload, ID, Traceparent, From []byte
	Seq, PublishedAt                      uint64
	Attempt, Priority                     uint32
	Score                                 float64
	Headers                               []Header
	Subs                                  []uint32
}

// reset forgets what an earlier frame said.
func (v *View) reset() {
	*v = View{Headers: v.Headers[:0], Subs: v.Subs[:0]}
}

// valid reports whether every string is UTF-8.
func (v *View) valid() bool {
	for _, h := range v.Headers {
		if !utf8.Valid(h.Key) || !utf8.Valid(h.Value) {
			return false
		}
	}
	return utf8.Valid(v.Topic) && utf8.Valid(v.Traceparent) && utf8.Valid(v.From)
}

// Message is a message that owns what it refers to, as an application wants it.
type Message struct {
	Topic, Traceparent, From string
	Payload, ID              []byte
	Seq, PublishedAt         uint64
	Attempt, Priority        uint32
	Score                    float64
	Headers                  map[string]string
	Subs                     []uint32
}

// Own copies a view.
func (v *View) Own() *Message {
	m := &Message{
		Topic: string(v.Topic), Traceparent: string(v.Traceparent), From: string(v.From),
		Payload: slices.Clone(v.Payload), ID: slices.Clone(v.ID), Seq: v.Seq, PublishedAt: v.PublishedAt,
		Attempt: v.Attempt, Priority: v.Priority, Score: v.Score, Subs: slices.Clone(v.Subs),
	}
	if len(v.Headers) > 0 {
		m.Headers = make(map[string]string, len(v.Headers))
		for _, h := range v.Headers {
			m.Headers[string(h.Key)] = string(h.Value)
		}
	}
	return m
}

type pair struct{ key, value string }

// sorted appends headers by key: every format here gives equal messages equal bytes.
func sorted(dst []pair, headers map[string]string) []pair {
	for k, v := range headers {
		dst = append(dst, pair{k, v})
	}
	if len(dst) > 1 {
		slices.SortFunc(dst, func(a, b pair) int { return strings.Compare(a.key, b.key) })
	}
	return dst
}
