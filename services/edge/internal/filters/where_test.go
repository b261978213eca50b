package filters

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/history"
)

func key(n int) Key { return Key{Sub: uint32(n)} }

func message(t testing.TB, name string, m *wirev1.Message, features map[string]float64) *exchange.Message {
	t.Helper()
	if features != nil {
		mesh, err := proto.Marshal(&meshv1.MessageFeatures{Features: features, Vector: []float32{1, 2}})
		if err != nil {
			t.Fatal(err)
		}
		m.Mesh = mesh
	}
	body, err := wire.Body(m)
	if err != nil {
		t.Fatal(err)
	}
	return history.Encode(nil, []history.Parts{{Topic: name, Epoch: 1, Seq: 1, Body: body}}, false)[0]
}

func TestExpressionsSeeTheMessage(t *testing.T) {
	m := message(t, "shop/7", &wirev1.Message{
		Payload: []byte(`{"total": 120, "tags": ["new"], "path": "/a/b"}`), Headers: map[string]string{"country": "FR", "a": ""}, Priority: 7, From: "ann",
		PublishedAt: 1, Id: make([]byte, 16),
	}, map[string]float64{"price": 9.5, "age": 3})
	for text, want := range map[string]bool{
		`payload.total > 100`:                                 true,
		`payload.total > 120`:                                 false,
		`payload.missing > 1`:                                 false,
		`!(payload.missing > 1)`:                              false,
		`has(payload.missing) || "new" in payload.tags`:       true,
		`headers.country == "FR" && headers["none"] == ""`:    true,
		`has(headers.none)`:                                   false,
		`features.price >= 9.5 && features.other == 0.0`:      true,
		`has(features.age)`:                                   true,
		`priority == 7 && from == "ann"`:                      true,
		`topic.startsWith("shop/") && topic.endsWith("7")`:    true,
		`payload.tags.exists(t, t == "new")`:                  true,
		`payload.path.matches("^(/[a-z])+$")`:                 true,
		`payload`:                                             false,
		`features.price / 0.0 > 1.0`:                          true,
		`int(payload.total) / 0 == 1`:                         false,
		`payload.tags.map(t, t + t).exists(t, t == "newnew")`: true,
	} {
		r := New(Config{})
		id, err := r.Add(key(1), "shop/+", text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		m.Verdicts.Store(nil)
		r.Judge([]*exchange.Message{m})
		if got, known := m.Verdicts.Load().Of(id); !known || got != want {
			t.Errorf("%s: %v (known %v), want %v", text, got, known, want)
		}
	}
}

func TestExpressionsAreRefused(t *testing.T) {
	r := New(Config{})
	for _, text := range []string{"", "1 +", "1", `"x"`, "x", "age < 5.0", "now > timestamp(0)", "profile.x > 1.0", `id == ""`, strings.Repeat("true || ", 600) + "true", `payload.a.matches(payload.b)`} {
		id, err := r.Add(key(1), "a", text)
		if id != 0 || code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.40q: %d, %v", text, id, err)
		}
	}
	if n := r.Stats().Refused.Load(); n != 11 {
		t.Errorf("%d refused", n)
	}
}

// What is made to be slow is not: the evaluations of one message end within a bound, whatever it
// is.
func TestEvaluationsEnd(t *testing.T) {
	r := New(Config{Budget: time.Second})
	var ids []uint32
	for i, text := range []string{
		`payload.path.matches("(/.+)+$")`, `payload.path.matches("(a|a)*$")`, `payload.path.matches("^(a|a)*$")`,
		`payload.all(x, x == 1.0)`, `payload.exists(x, string(x) + string(x) == "2")`, `payload.path == payload.path`,
	} {
		id, err := r.Add(key(i), "t", text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		ids = append(ids, id)
	}
	runtime.LockOSThread() // its CPU time is counted, since others may use the machine
	defer runtime.UnlockOSThread()
	list := "[" + strings.Repeat("1,", 10_000) + "1]"
	for name, payload := range map[string]string{
		"slashes":    `{"path": "` + strings.Repeat("/", 100) + `\n"}`,
		"as":         `{"path": "` + strings.Repeat("a", 4000) + `b"}`,
		"long":       `{"path": "` + strings.Repeat("a", 1<<19) + `"}`,
		"list":       list,
		"nested":     strings.Repeat("[", 64) + strings.Repeat("]", 64),
		"too nested": strings.Repeat("[", 65) + strings.Repeat("]", 65),
		"brackets":   strings.Repeat("[", 4<<20),
		"objects":    strings.Repeat(`{"a":`, 1<<20),
	} {
		m := message(t, "t", &wirev1.Message{Payload: []byte(payload)}, nil)
		best := time.Hour
		for range 3 {
			m.Verdicts.Store(nil)
			begun := spent(t)
			r.Judge([]*exchange.Message{m})
			best = min(best, spent(t)-begun)
		}
		if _, known := m.Verdicts.Load().Of(ids[0]); !known {
			t.Errorf("%s: not judged", name)
		}
		if best > 200*time.Millisecond { // 5 programs of at most 5,000 units, and the race detector
			t.Errorf("%s took %v", name, best)
		}
	}
}

// However many filters there are, a topic's take no more than the budget, and who would exceed it
// is refused.
func TestTopicsHaveABudget(t *testing.T) {
	const budget = 20 * time.Microsecond
	r := New(Config{Budget: budget})
	refused := 0
	for i := range 3000 {
		if _, err := r.Add(key(i), "t", fmt.Sprintf("payload.n == %d", i)); err != nil {
			if refused++; code.Of(err) != wirev1.Code_CODE_OVERLOADED {
				t.Fatal(err)
			}
		}
	}
	s := r.of("t")
	if refused == 0 || len(s.ids) != 3000-refused || len(s.ids) < 10 || estimated(s) > budget {
		t.Errorf("%d programs take %v, %d were refused", len(s.ids), estimated(s), refused)
	}
	if _, err := r.Add(key(20_000), "t", "payload.n == 0"); err != nil {
		t.Errorf("a filter that is evaluated anyway: %v", err)
	}
	if _, err := r.Add(key(20_001), "u", "payload.n == -1"); err != nil {
		t.Errorf("another topic: %v", err)
	}
	if _, err := r.Add(key(20_002), "#", "payload.n == -1"); err == nil {
		t.Error("everything, beside a topic that is full")
	}
}

func estimated(s *set) (sum time.Duration) {
	for _, p := range s.programs {
		sum += p.time
	}
	return sum
}

// Whoever comes and goes, no topic is above the budget, every message has exactly the programs
// whose filters match, and nothing is left at the end.
func TestRegistryIsTheSumOfItsSubscriptions(t *testing.T) {
	filters := []string{"a", "a/b", "a/c", "a/+", "+/b", "#", "a/#", "b/#", "+"}
	texts := []string{"true", "payload > 1", "payload > 2", "headers.x == 'y'", "payload.list.exists(x, x > 2)", "topic == 'a'"}
	topics := []string{"a", "a/b", "a/c", "b", "b/b", "c/d/e"}
	rapid.Check(t, func(t *rapid.T) {
		budget := rapid.SampledFrom([]time.Duration{time.Microsecond, 20 * time.Microsecond, time.Millisecond}).Draw(t, "budget")
		r := New(Config{Budget: budget})
		type sub struct{ filter, text string }
		have := map[Key]sub{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			k := key(rapid.IntRange(0, 12).Draw(t, "key"))
			if _, ok := have[k]; ok {
				r.Remove(k)
				delete(have, k)
				continue
			}
			s := sub{rapid.SampledFrom(filters).Draw(t, "filter"), rapid.SampledFrom(texts).Draw(t, "text")}
			if _, err := r.Add(k, s.filter, s.text); err == nil {
				have[k] = s
			} else if code.Of(err) != wirev1.Code_CODE_OVERLOADED {
				t.Fatal(err)
			}
			for _, name := range topics {
				want := map[string]bool{}
				for _, s := range have {
					if topic.Match(s.filter, name) {
						want[s.text] = true
					}
				}
				got := r.of(name)
				if got == nil {
					got = &set{}
				}
				if r.Wants(name) != (len(want) > 0) {
					t.Fatalf("%s: wanted or not", name)
				}
				if estimated(got) > budget || len(got.programs) != len(want) {
					t.Fatalf("%s has %d programs of %v, want %d", name, len(got.programs), estimated(got), len(want))
				}
				for _, p := range got.programs {
					if !want[p.text] {
						t.Fatalf("%s has %s", name, p.text)
					}
				}
			}
		}
		for k := range have {
			r.Remove(k)
		}
		for _, names := range r.times.dear {
			if names != nil {
				t.Fatalf("%v are left", names)
			}
		}
		if r.stats.Programs.Load() != 0 || r.stats.Memory.Load() != 0 || r.texts != 0 || len(r.programs)+len(r.filters)+len(r.times.of)+len(r.wanted.exact)+r.wanted.wild.Len()+len(r.uses)+r.wild.Len() != 0 {
			t.Fatal("something is left")
		}
	})
}

// Who judges messages does not wait while somebody's filter is compared with all others.
func TestWhoJudgesWaitsForNoComparison(t *testing.T) {
	r := New(Config{})
	if _, err := r.Add(key(1), "t", "payload == 1"); err != nil {
		t.Fatal(err)
	}
	r.changing.Lock() // as Add while it compares
	defer r.changing.Unlock()
	done := make(chan bool)
	go func() {
		done <- r.Judged([]*exchange.Message{message(t, "t", &wirev1.Message{Payload: []byte("1")}, nil)}) && r.Wants("t")
	}()
	select {
	case judged := <-done:
		if judged {
			t.Error("it is judged")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it waits")
	}
}

// What is too dear by itself is refused without a look at topics, of which there may be very many.
func TestTooDearAFilterIsComparedWithNoTopic(t *testing.T) {
	r := New(Config{Budget: time.Microsecond})
	a, b := &program{text: "a", time: time.Microsecond}, &program{text: "b", time: 2 * time.Microsecond}
	r.use(key(1), "t/1", a)
	if takes := r.with("t/+", b); takes != b.time {
		t.Errorf("topics were looked at: %v", takes)
	}
	if takes := r.with("t/+", &program{text: "c", time: time.Nanosecond}); takes != a.time+1 {
		t.Errorf("it takes %v", takes)
	}
}

// Only topics whose filters are dear are compared with one that has wildcards.
func TestTheDearestTopicsAreFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ts, want := newTimes(1000), map[string]time.Duration{}
		for range rapid.IntRange(0, 30).Draw(t, "topics") {
			name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "name")
			d := time.Duration(rapid.Int64Range(0, 1100).Draw(t, "takes"))
			ts.add(name, d-want[name])
			want[name] = d
		}
		d, found := time.Duration(rapid.Int64Range(0, 1000).Draw(t, "above")), map[string]bool{}
		for name := range ts.above(d) {
			if found[name] || want[name] <= d-ts.step {
				t.Fatalf("%s is found, which takes %v", name, want[name])
			}
			found[name] = true
		}
		for name, takes := range want {
			if takes > d && !found[name] {
				t.Fatalf("%s takes %v and is not found above %v", name, takes, d)
			}
		}
	})
}

// What filters are said to take is what they do, and a little more; beyond the bound they are
// refused until others go.
func TestMemoryIsEstimated(t *testing.T) {
	const n = 1000
	deep := strings.Repeat("/a", 60)
	for name, sub := range map[string]func(i int) (filter, text string){
		"topics":         func(i int) (string, string) { return fmt.Sprint("topic/", i), "payload > 1" },
		"one topic":      func(int) (string, string) { return "topic", "payload > 1" },
		"wildcards":      func(i int) (string, string) { return fmt.Sprint("topic/", i, "/+"), "payload > 1" },
		"deep wildcards": func(i int) (string, string) { return fmt.Sprint(i, deep, "/+"), "payload > 1" },
		"expressions":    func(i int) (string, string) { return fmt.Sprint("topic/", i), fmt.Sprint("payload == ", i) },
		"patterns": func(i int) (string, string) {
			return fmt.Sprint("topic/", i%200), fmt.Sprint("payload == ", i%200, strings.Repeat(` || payload.a.matches("a{120}$")`, 10))
		},
		"long expressions": func(i int) (string, string) {
			return fmt.Sprint("topic/", i%200), fmt.Sprint("payload == ", i%200, strings.Repeat(" || payload == 1", 60))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := New(Config{Budget: time.Second})
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			for i := range n {
				filter, text := sub(i)
				if _, err := r.Add(key(i), filter, text); err != nil {
					t.Fatal(err)
				}
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			real, said := int64(after.HeapAlloc)-int64(before.HeapAlloc), r.Stats().Memory.Load()
			t.Logf("%d bytes each, said to be %d", real/n, said/n)
			if real > said+said/10 || real < said/6 {
				t.Errorf("%d bytes, said to be %d", real, said)
			}
			r.cfg.Memory = int(said)
			filter, text := sub(n)
			if _, err := r.Add(key(n), filter, text); code.Of(err) != wirev1.Code_CODE_OVERLOADED {
				t.Errorf("beyond the bound: %v", err)
			}
			r.Remove(key(0))
			r.Remove(key(1))
			if _, err := r.Add(key(n), filter, text); err != nil {
				t.Errorf("once others have gone: %v", err)
			}
		})
	}
}

// A message is judged again only where a program came since.
func TestMessagesAreJudgedOnce(t *testing.T) {
	r := New(Config{})
	m := message(t, "t", &wirev1.Message{Payload: []byte("5")}, nil)
	all := []*exchange.Message{m}
	if r.Judge(all); m.Verdicts.Load() != nil || !r.Judged(all) {
		t.Error("judged without filters")
	}
	a, _ := r.Add(key(1), "t", "payload > 1")
	if r.Judged(all) {
		t.Error("not judged yet")
	}
	r.Judge(all)
	first := m.Verdicts.Load()
	_, _ = r.Add(key(2), "u", "payload > 2")
	_, _ = r.Add(key(3), "t", "payload > 1")
	if r.Judge(all); m.Verdicts.Load() != first {
		t.Error("judged again without need")
	}
	b, _ := r.Add(key(4), "+", "payload > 5")
	r.Judge(all)
	v := m.Verdicts.Load()
	if pass, known := v.Of(a); !pass || !known {
		t.Error("the first filter is forgotten")
	}
	if pass, known := v.Of(b); pass || !known {
		t.Error("the second filter is wrong")
	}
	r.Remove(key(1))
	r.Remove(key(3))
	if !r.Judged(all) {
		t.Error("to be judged again because a filter went")
	}
}

// FuzzFill takes any bytes for a message and its features.
func FuzzFill(f *testing.F) {
	body, err := wire.Body(&wirev1.Message{Payload: []byte(`{"a":1}`), Headers: map[string]string{"a": "b"}, From: "ann"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body, []byte{})
	f.Add(bytes.Repeat(body, 2), []byte{10, 12, 10, 1, 'x', 17, 0, 0, 0, 0, 0, 0, 0, 64})
	r := New(Config{})
	for i, text := range []string{"payload.a == 1", "headers.a == 'b'", "features.x == 2.0 || from == 'ann'", "headers.all(k, k != '') && features.all(k, k != '')"} {
		if _, err := r.Add(key(i), "t", text); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, body, mesh []byte) {
		frame := wire.AppendMessage(nil, "t", 1, body)
		if frame == nil {
			return
		}
		m := &exchange.Message{Topic: "t", Seq: 1, Frame: frame, Mesh: mesh}
		r.Judge([]*exchange.Message{m})
		if !r.Judged([]*exchange.Message{m}) {
			t.Fatal("not judged")
		}
	})
}

// How long it takes to add a filter with wildcards beside very many of others', and how long who
// judges messages waits meanwhile.
func BenchmarkAddBesideMany(b *testing.B) {
	for pattern, n := range map[string]int{"t/%d": 100_000, "t/%d/+": 4000} {
		b.Run(fmt.Sprint(n, " like ", pattern), func(b *testing.B) {
			r := New(Config{Memory: 1 << 40})
			for i := range n {
				if _, err := r.Add(key(i), fmt.Sprintf(pattern, i), "payload > 1"); err != nil {
					b.Fatal(err)
				}
			}
			all := []*exchange.Message{message(b, "t/1", &wirev1.Message{Payload: []byte("5")}, nil)}
			r.Judge(all)
			stop, longest := make(chan struct{}), make(chan time.Duration)
			go func() {
				for most := time.Duration(0); ; {
					began := time.Now()
					r.Judged(all)
					most = max(most, time.Since(began))
					select {
					case <-stop:
						longest <- most
						return
					case <-time.After(100 * time.Microsecond):
					}
				}
			}()
			b.ResetTimer()
			for i := range b.N {
				if _, err := r.Add(key(-1-i), "#", "payload > 2"); err != nil {
					b.Fatal(err)
				}
				r.Remove(key(-1 - i))
			}
			b.StopTimer()
			close(stop)
			b.ReportMetric(float64((<-longest).Microseconds())/1000, "ms-longest-wait")
		})
	}
}

func BenchmarkJudge(b *testing.B) {
	payload := []byte(`{"total": 120, "country": "FR", "tags": ["new", "red"], "path": "/a/b/c"}`)
	for _, n := range []int{0, 1, 10, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := New(Config{Budget: time.Second})
			for i := range n {
				if _, err := r.Add(key(i), "t", fmt.Sprintf(`payload.total > %d && payload.country == "FR"`, i)); err != nil {
					b.Fatal(err)
				}
			}
			m := message(b, "t", &wirev1.Message{Payload: payload}, nil)
			all := []*exchange.Message{m}
			b.ReportAllocs()
			for b.Loop() {
				m.Verdicts.Store(nil)
				r.Judge(all)
			}
		})
	}
}
