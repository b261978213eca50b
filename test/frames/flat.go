package frames

import flatbuffers "github.com/google/flatbuffers/go"

// Slots of the FlatBuffers table, in the order in which its schema would list the fields of
// wire.proto. A header is a table of two strings.
const (
	flatTopic = iota
	flatSeq
	flatPayload
	flatPublishedAt
	flatID
	flatHeaders
	flatAttempt
	flatPriority
	flatTraceparent
	flatScore
	flatSubs
	flatFrom
	flatSlots
)

// AppendFlat appends m as FlatBuffers; b is reset. The calls are those that flatc generates. A seq
// of 0 takes its place too, for StampFlat.
func AppendFlat(dst []byte, b *flatbuffers.Builder, m *Message) []byte {
	b.Reset()
	topic, payload, id := b.CreateString(m.Topic), b.CreateByteVector(m.Payload), b.CreateByteVector(m.ID)
	headers, subs := flatHeadersOf(b, m.Headers), flatSubsOf(b, m.Subs)
	traceparent, from := flatString(b, m.Traceparent), flatString(b, m.From)
	b.StartObject(flatSlots)
	b.PrependUOffsetTSlot(flatTopic, topic, 0)
	b.PrependUint64(m.Seq)
	b.Slot(flatSeq)
	b.PrependUOffsetTSlot(flatPayload, payload, 0)
	b.PrependUint64Slot(flatPublishedAt, m.PublishedAt, 0)
	b.PrependUOffsetTSlot(flatID, id, 0)
	b.PrependUOffsetTSlot(flatHeaders, headers, 0)
	b.PrependUint32Slot(flatAttempt, m.Attempt, 0)
	b.PrependUint32Slot(flatPriority, m.Priority, 0)
	b.PrependUOffsetTSlot(flatTraceparent, traceparent, 0)
	b.PrependFloat64Slot(flatScore, m.Score, 0)
	b.PrependUOffsetTSlot(flatSubs, subs, 0)
	b.PrependUOffsetTSlot(flatFrom, from, 0)
	b.Finish(b.EndObject())
	return append(dst, b.FinishedBytes()...)
}

func flatString(b *flatbuffers.Builder, s string) flatbuffers.UOffsetT {
	if s == "" {
		return 0
	}
	return b.CreateString(s)
}

func flatHeadersOf(b *flatbuffers.Builder, headers map[string]string) flatbuffers.UOffsetT {
	if len(headers) == 0 {
		return 0
	}
	var few [8]pair
	var offsets []flatbuffers.UOffsetT
	var fewOffsets [8]flatbuffers.UOffsetT
	offsets = fewOffsets[:0]
	for _, h := range sorted(few[:0], headers) {
		k, v := b.CreateString(h.key), b.CreateString(h.value)
		b.StartObject(2)
		b.PrependUOffsetTSlot(0, k, 0)
		b.PrependUOffsetTSlot(1, v, 0)
		offsets = append(offsets, b.EndObject())
	}
	b.StartVector(4, len(offsets), 4)
	for i := len(offsets) - 1; i >= 0; i-- {
		b.PrependUOffsetT(offsets[i])
	}
	return b.EndVector(len(offsets))
}

func flatSubsOf(b *flatbuffers.Builder, subs []uint32) flatbuffers.UOffsetT {
	if len(subs) == 0 {
		return 0
	}
	b.StartVector(4, len(subs), 4)
	for i := len(subs) - 1; i >= 0; i-- {
		b.PrependUint32(subs[i])
	}
	return b.EndVector(len(subs))
}

func flatRoot(b []byte) flatbuffers.Table {
	return flatbuffers.Table{Bytes: b, Pos: flatbuffers.GetUOffsetT(b)}
}

// slot is where vtables say the offset of a field is.
func slot(n int) flatbuffers.VOffsetT { return flatbuffers.VOffsetT(4 + 2*n) }

func flatBytes(t *flatbuffers.Table, n int) []byte {
	if o := t.Offset(slot(n)); o != 0 {
		return t.ByteVector(t.Pos + flatbuffers.UOffsetT(o))
	}
	return nil
}

// DecodeFlat reads a whole message. The Go runtime has no verifier: bytes that are no message make
// it panic or read nonsense.
func DecodeFlat(v *View, b []byte) error {
	v.reset()
	t := flatRoot(b)
	v.Topic, v.Payload, v.ID = flatBytes(&t, flatTopic), flatBytes(&t, flatPayload), flatBytes(&t, flatID)
	v.Traceparent, v.From = flatBytes(&t, flatTraceparent), flatBytes(&t, flatFrom)
	v.Seq, v.PublishedAt = t.GetUint64Slot(slot(flatSeq), 0), t.GetUint64Slot(slot(flatPublishedAt), 0)
	v.Attempt, v.Priority = t.GetUint32Slot(slot(flatAttempt), 0), t.GetUint32Slot(slot(flatPriority), 0)
	v.Score = t.GetFloat64Slot(slot(flatScore), 0)
	if o := t.Offset(slot(flatHeaders)); o != 0 {
		at, n := t.Vector(flatbuffers.UOffsetT(o)), t.VectorLen(flatbuffers.UOffsetT(o))
		for i := range n {
			h := flatbuffers.Table{Bytes: b, Pos: t.Indirect(at + flatbuffers.UOffsetT(i)*4)}
			v.Headers = append(v.Headers, Header{flatBytes(&h, 0), flatBytes(&h, 1)})
		}
	}
	if o := t.Offset(slot(flatSubs)); o != 0 {
		at, n := t.Vector(flatbuffers.UOffsetT(o)), t.VectorLen(flatbuffers.UOffsetT(o))
		for i := range n {
			v.Subs = append(v.Subs, t.GetUint32(at+flatbuffers.UOffsetT(i)*4))
		}
	}
	if !v.valid() {
		return errNotMessage
	}
	return nil
}

// StampFlat appends a frame that was encoded without its seq, with it. Subs can't be given to it:
// that takes encoding it again.
func StampFlat(dst, shared []byte, seq uint64) []byte {
	at := len(dst)
	dst = append(dst, shared...)
	t := flatRoot(dst[at:])
	t.MutateUint64Slot(slot(flatSeq), seq)
	return dst
}
