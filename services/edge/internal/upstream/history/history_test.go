package history

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"unsafe"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/unacked"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// store answers as its functions say.
type store struct {
	mu    sync.Mutex
	calls int
	read  func(call int, req *meshv1.ReadLogRequest) ([]*meshv1.ReadLogResponse, error)
	heads func(topics, filters []string) ([]*meshv1.Head, error)
}

func (s *store) ReadLog(_ context.Context, req *meshv1.ReadLogRequest, take func(*meshv1.ReadLogResponse) error) error {
	s.mu.Lock()
	s.calls++
	call := s.calls
	s.mu.Unlock()
	resps, err := s.read(call, req)
	for _, r := range resps {
		if err := take(r); err != nil {
			return err
		}
	}
	return err
}

func (s *store) Heads(_ context.Context, topics, filters []string, _ uint32) ([]*meshv1.Head, error) {
	return s.heads(topics, filters)
}

func responses(seqs ...uint64) []*meshv1.ReadLogResponse {
	out := []*meshv1.ReadLogResponse{{Epoch: 5, Head: 9, Oldest: 1}}
	for _, seq := range seqs {
		out = append(out, &meshv1.ReadLogResponse{Records: []*meshv1.LogRecord{{Seq: seq, ExpiresAt: 77}}})
	}
	return out
}

func read(r *Reader, k Key) exchange.Range {
	got := make(chan exchange.Range, 1)
	r.Read(k, func(out exchange.Range) { got <- out })
	return <-got
}

func started(t *testing.T, s Store, workers, waiting int) *Reader {
	r := NewReader(s, func(topic string) string { owner, _, _ := strings.Cut(topic, "/"); return owner }, waiting, false)
	r.Start(workers)
	t.Cleanup(func() {
		if err := r.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return r
}

func TestEqualReadsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		s := &store{read: func(_ int, req *meshv1.ReadLogRequest) ([]*meshv1.ReadLogResponse, error) {
			<-gate
			return responses(req.GetFromSeq(), req.GetFromSeq()+1), nil
		}}
		r := started(t, s, 1, 2)
		var mu sync.Mutex
		got := map[uint64]int{}
		ask := func(from uint64) {
			r.Read(Key{Topic: "t", From: from}, func(out exchange.Range) {
				mu.Lock()
				defer mu.Unlock()
				if code.Of(out.Err) == wirev1.Code_CODE_OVERLOADED {
					got[0]++
				} else {
					got[out.Messages[0].Seq]++
				}
			})
		}
		ask(1)
		synctest.Wait() // under way: it no longer waits
		for range 9 {
			ask(1)
		}
		ask(3)
		ask(5)
		ask(7) // one too many
		close(gate)
		synctest.Wait()
		if fmt.Sprint(got) != "map[0:1 1:10 3:1 5:1]" || s.calls != 3 || r.Shared.Load() != 9 || r.Refused.Load() != 1 {
			t.Errorf("answers %v after %d reads", got, s.calls)
		}
	})
}

// As many reads of one owner as may wait and be under way have none of another's wait.
func TestReadsOfAnOwnerWaitForNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		s := &store{read: func(_ int, req *meshv1.ReadLogRequest) ([]*meshv1.ReadLogResponse, error) {
			if strings.HasPrefix(req.GetTopic(), "slow/") {
				<-gate
			}
			return responses(req.GetFromSeq()), nil
		}}
		r := started(t, s, 2, 4)
		refused := 0
		for from := range uint64(10) {
			r.Read(Key{Topic: "slow/1", From: from + 1}, func(out exchange.Range) {
				if code.Of(out.Err) == wirev1.Code_CODE_OVERLOADED {
					refused++
				}
			})
			synctest.Wait()
		}
		if refused != 4 || r.Waiting() != 4 {
			t.Errorf("%d are refused, %d wait", refused, r.Waiting())
		}
		if out := read(r, Key{Topic: "fast/1", From: 7}); out.Err != nil || out.Messages[0].Seq != 7 {
			t.Errorf("%+v", out)
		}
		close(gate)
		synctest.Wait()
		if len(r.lines) != 0 || r.Waiting() != 0 {
			t.Errorf("%d owners are remembered", len(r.lines))
		}
	})
}

func TestReadsAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{read: func(call int, req *meshv1.ReadLogRequest) ([]*meshv1.ReadLogResponse, error) {
			if call < 3 || req.GetTopic() == "away" {
				return nil, code.New(wirev1.Code_CODE_UNAVAILABLE, "away")
			}
			return responses(4), nil
		}}
		r := started(t, s, 1, 9)
		if out := read(r, Key{Topic: "t", From: 4}); out.Err != nil || len(out.Messages) != 1 || out.Head != 9 || out.Epoch != 5 || out.From != 4 {
			t.Errorf("%+v", out)
		}
		if out := read(r, Key{Topic: "away", From: 4}); code.Of(out.Err) != wirev1.Code_CODE_UNAVAILABLE || s.calls != 6 {
			t.Errorf("%+v after %d calls", out, s.calls)
		}
	})
}

func TestPartOfARangeIsAnAnswer(t *testing.T) {
	s := &store{read: func(int, *meshv1.ReadLogRequest) ([]*meshv1.ReadLogResponse, error) {
		return responses(4, 5), code.New(wirev1.Code_CODE_UNAVAILABLE, "away in the middle")
	}}
	out := read(started(t, s, 1, 9), Key{Topic: "t", From: 4})
	if out.Err != nil || len(out.Messages) != 2 || out.Messages[1].Seq != 5 || out.Messages[1].ExpiresAt != 77 {
		t.Errorf("%+v", out)
	}
}

func TestEpochThatIsGoneComesWithThePresentOne(t *testing.T) {
	s := &store{
		read: func(int, *meshv1.ReadLogRequest) ([]*meshv1.ReadLogResponse, error) {
			return nil, code.New(wirev1.Code_CODE_EPOCH_CHANGED, "gone")
		},
		heads: func([]string, []string) ([]*meshv1.Head, error) {
			return []*meshv1.Head{{Topic: "t", Epoch: 6, Head: 2, Oldest: 1}}, nil
		},
	}
	out := read(started(t, s, 1, 9), Key{Topic: "t", Epoch: 5, From: 4})
	if code.Of(out.Err) != wirev1.Code_CODE_EPOCH_CHANGED || out.Epoch != 6 || out.Head != 2 {
		t.Errorf("%+v", out)
	}
}

func TestFiltersThatMatchTooMuchAreFoundOneByOne(t *testing.T) {
	s := &store{heads: func(_, filters []string) ([]*meshv1.Head, error) {
		if slices.Contains(filters, "big") {
			return nil, code.New(wirev1.Code_CODE_TOO_MANY_TOPICS, "too many")
		}
		var out []*meshv1.Head
		for _, f := range filters {
			out = append(out, &meshv1.Head{Topic: f, Head: 1})
		}
		return out, nil
	}}
	heads, tooMany, err := HeadsUnder(t.Context(), s, []string{"a", "b", "big", "c", "d"})
	if err != nil || len(heads) != 4 || !slices.Equal(tooMany, []string{"big"}) {
		t.Errorf("%v %v %v", heads, tooMany, err)
	}
}

func TestEncodedMessages(t *testing.T) {
	want := &wirev1.Message{Topic: "t", Seq: 3, Payload: []byte("x"), Priority: 7, Traceparent: "00-a-b-01", From: "ann"}
	body, err := wire.Body(want)
	if err != nil {
		t.Fatal(err)
	}
	parts := []Parts{{"t", 1, 3, 9, body}}
	m := Encode(nil, parts, true)[0]
	var got wirev1.Message
	if err := proto.Unmarshal(m.Frame[wire.HeaderSize:], &got); err != nil || !proto.Equal(&got, want) {
		t.Errorf("%v %v", &got, err)
	}
	if m.Priority != 7 || Encode(nil, parts, false)[0].Priority != 7 {
		t.Errorf("priority %d", m.Priority)
	}
	if m.Traceparent != want.GetTraceparent() || Encode(nil, parts, false)[0].Traceparent != "" {
		t.Errorf("traceparent %q", m.Traceparent)
	}
	if Encode(nil, []Parts{{"t", 1, 1, 0, make([]byte, wire.MaxBody)}}, false) != nil {
		t.Error("a frame beyond the protocol's bound")
	}
}

// What follows each other lies side by side, up to a bound; every frame is what it would be alone.
func TestMessagesLieSideBySide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var parts []Parts
		for range rapid.IntRange(1, 200).Draw(t, "n") {
			p := Parts{Topic: "room/1", Epoch: 7, Seq: uint64(len(parts)) + 1, Body: make([]byte, rapid.SampledFrom([]int{0, 1, 150, 20_000}).Draw(t, "size"))}
			switch rapid.IntRange(0, 30).Draw(t, "break") {
			case 0:
				p.Topic, p.Epoch, p.Seq = "talk", 0, 0
			case 3:
				p.Topic, p.Epoch, p.Seq = "talk/"+strconv.Itoa(len(parts)), 0, 0
			case 1:
				p.Epoch = 8
			case 2:
				p.Seq += 1000
			}
			if len(p.Body) > 0 {
				payload := bytes.Repeat([]byte{byte(len(parts))}, len(p.Body))
				p.Body = must(wire.Body(&wirev1.Message{Payload: payload}))
			}
			parts = append(parts, p)
		}
		all := Encode(nil, parts, false)
		run, total := 1, len(all[0].Frame)
		for i, m := range all {
			p := parts[i]
			if alone := wire.AppendMessage(nil, p.Topic, p.Seq, p.Body); m.Topic != p.Topic || m.Epoch != p.Epoch || m.Seq != p.Seq || !slices.Equal(m.Frame, alone) {
				t.Fatalf("message %d is not what it is alone", i)
			}
			following := 0
			for next := m; next != nil; next = next.Next {
				following += len(next.Frame)
			}
			if cap(m.Frame) != following {
				t.Fatalf("the memory behind message %d is %d bytes, those that follow it are %d: another topic's would be taken for the next", i, cap(m.Frame), following)
			}
			if i == 0 {
				continue
			}
			last, beside := all[i-1], all[i-1].Next == m
			if beside && &last.Frame[:len(last.Frame)+1][len(last.Frame)] != &m.Frame[0] {
				t.Fatalf("message %d does not lie behind the one before", i)
			}
			if beside && !follows(&parts[i-1], &p) || !beside && last.Next != nil {
				t.Fatalf("message %d does not follow the one before", i)
			}
			if run, total = run+1, total+len(m.Frame); !beside {
				if follows(&parts[i-1], &p) && run <= runMost && total+32*run < runBytes {
					t.Fatalf("message %d is alone without need", i)
				}
				run, total = 1, len(m.Frame)
			}
			if run > runMost || run > 1 && total > runBytes {
				t.Fatalf("a run of %d messages and %d bytes", run, total)
			}
		}
	})
}

func must(body []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return body
}

func FuzzLook(f *testing.F) {
	body, _ := wire.Body(&wirev1.Message{Payload: []byte("x"), Headers: map[string]string{"a": "b"}, Priority: 300, Traceparent: "tp"})
	f.Add(body)
	f.Add([]byte{0x4a, 0xff})
	f.Add([]byte{0x40, 0xff})
	f.Add([]byte{0x32, 6, 0x0a, 1, 0xff, 0x12, 1, 'x'})
	f.Add([]byte{0x4a, 1, 0xff})
	f.Add([]byte{0x0a, 1, 'x'})
	f.Add([]byte{0x80, 0x80, 0x80, 0x80, 0x1a, 1}) // a field number beyond the last
	f.Add([]byte{0x32, 6, 0x80, 0x80, 0x80, 0x80, 0x1a, 1})
	f.Fuzz(func(t *testing.T, body []byte) {
		priority, trace, sound := look(body)
		var frame wirev1.Message
		err := proto.Unmarshal(wire.AppendMessage(nil, "t", 7, body)[wire.HeaderSize:], &frame)
		if sound && (err != nil || frame.GetTopic() != "t" || frame.GetSeq() != 7 || frame.GetSubs() != nil) {
			t.Fatalf("taken for a message, which subscribers would get as %v, %v", &frame, err)
		}
		if !sound {
			return
		}
		if priority > maxPriority {
			t.Fatalf("priority %d", priority)
		}
		var m wirev1.Message
		if proto.Unmarshal(body, &m) != nil {
			return
		}
		if want := min(m.GetPriority(), maxPriority); uint32(priority) != want || string(trace) != m.GetTraceparent() {
			t.Fatalf("found %d and %q, want %d and %q", priority, trace, want, m.GetTraceparent())
		}
	})
}

// What subscribers could not decode, or would take for another message, is left out alone, whoever
// sent it over NATS: its neighbours are as they were.
func TestWhatIsNoMessageIsLeftOut(t *testing.T) {
	good, err := wire.Body(&wirev1.Message{Payload: []byte("hi"), Headers: map[string]string{"a": "ö"}, Traceparent: "tp", From: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	parts := []Parts{{Topic: "t", Epoch: 1, Seq: 1, Body: good}}
	for _, bad := range [][]byte{
		{0xff, 0xff, 0xff, 0xff},
		{0x1a, 9, 'x'},
		{0x4a, 1, 0xff},
		{0x6a, 1, 0xff},
		{0x32, 3, 0x0a, 1, 0xff},
		{0x32, 2, 0x12, 4},
		{0x0a, 1, 'u'},
		{0x10, 9},
		{0x38, 1},
		{0x5a, 1, 3},
		{0x78, 1},
	} {
		parts = append(parts, Parts{Topic: "t", Epoch: 1, Seq: parts[len(parts)-1].Seq + 1, Body: append(bytes.Clone(good), bad...)})
	}
	parts = append(parts, Parts{Topic: "\xff", Body: good}, Parts{Topic: "t", Epoch: 1, Seq: 99, Body: good})
	all := Encode(nil, parts, true)
	if len(all) != 2 || all[0].Seq != 1 || all[1].Seq != 99 || all[0].Next != nil || all[0].Traceparent != "tp" {
		t.Fatalf("%d messages of 2 are left: %+v", len(all), all)
	}
	for _, m := range all {
		var got wirev1.Message
		if err := proto.Unmarshal(m.Frame[wire.HeaderSize:], &got); err != nil || string(got.GetPayload()) != "hi" {
			t.Errorf("seq %d: %v %v", m.Seq, &got, err)
		}
	}
}

// What the mesh has of a message for itself is in no frame, and a run of frames stays one.
func TestSubscribersDontGetFeatures(t *testing.T) {
	features, err := proto.Marshal(&meshv1.MessageFeatures{Features: map[string]float64{"price": 7}})
	if err != nil {
		t.Fatal(err)
	}
	var parts []Parts
	for seq := uint64(1); seq <= 3; seq++ {
		m := &wirev1.Message{Payload: []byte("hi"), From: "ann"}
		if seq != 2 {
			m.Mesh = features
		}
		body, err := wire.Body(m)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, Parts{Topic: "t", Epoch: 1, Seq: seq, Body: body})
	}
	for i, m := range Encode(nil, parts, false) {
		var got wirev1.Message
		if err := proto.Unmarshal(m.Frame[wire.HeaderSize:], &got); err != nil {
			t.Fatal(err)
		}
		if got.GetMesh() != nil || string(got.GetPayload()) != "hi" || got.GetFrom() != "ann" {
			t.Errorf("message %d is %v", i+1, &got)
		}
		if want := i != 1; want != bytes.Equal(m.Mesh, features) || !want && m.Mesh != nil {
			t.Errorf("message %d keeps %x", i+1, m.Mesh)
		}
		if (m.Next == nil) != (i == 2) {
			t.Errorf("message %d has lost its place", i+1)
		}
	}
}

// What a frame of 64 messages in a topic costs to make, with two headers each.
// Who has published a message is told apart from what it is ranked and filtered by, which keeps no
// memory where there is nothing of it.
func TestMessagesHaveTheirOrigin(t *testing.T) {
	for name, tt := range map[string]*meshv1.MessageFeatures{
		"a backend's": {Features: map[string]float64{"price": 7}}, "a client's": {Origin: 7},
		"a client's with features": {Origin: 1 << 63, Features: map[string]float64{"price": 7}}, "nothing": {},
	} {
		t.Run(name, func(t *testing.T) {
			mesh, err := proto.Marshal(tt)
			if err != nil {
				t.Fatal(err)
			}
			body, err := wire.Body(&wirev1.Message{Payload: []byte("hi"), Mesh: mesh})
			if err != nil {
				t.Fatal(err)
			}
			m := Encode(nil, []Parts{{Topic: "t", Epoch: 1, Seq: 1, Body: body}}, false)[0]
			if m.Origin != tt.GetOrigin() || (m.Mesh == nil) != (len(tt.GetFeatures()) == 0) {
				t.Errorf("it is of %x, and keeps %x", m.Origin, m.Mesh)
			}
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	var parts []Parts
	for seq := range uint64(64) {
		body := must(wire.Body(&wirev1.Message{
			Payload: make([]byte, 256), PublishedAt: 1, Id: make([]byte, 16), Headers: map[string]string{"lang": "en", "kind": "a plain one"}, From: "ann",
		}))
		parts = append(parts, Parts{Topic: "room/1", Epoch: 1, Seq: seq + 1, Body: body})
	}
	var all []*exchange.Message
	b.ReportAllocs()
	for b.Loop() {
		all = Encode(all[:0], parts, false)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/message")
}

// Who keeps all of what came together is charged about what that takes, and the whole block once.
func TestABlockIsChargedOnce(t *testing.T) {
	var all []Parts
	for seq := uint64(1); seq <= 1024; seq++ {
		all = append(all, Parts{Topic: "room/1", Epoch: 1, Seq: seq, Body: append([]byte{0x1a, 100}, strings.Repeat("x", 100)...)})
	}
	charged, real, ms := 0, 0, Encode(nil, all, false)
	for i, m := range ms {
		charged += unacked.Kept(m) - unacked.Kept(&exchange.Message{})
		if i%runMost == 0 {
			real += cap(m.Frame) + runMost*int(unsafe.Sizeof(*m))
		}
	}
	if len(ms) != len(all) || charged > real*11/10 || charged < real*9/10 {
		t.Fatalf("%d messages take %d bytes, %d are charged", len(ms), real, charged)
	}
}
