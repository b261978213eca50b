package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/closing"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// byTaste scores by what a profile likes. Nothing is ever late for the deadline.
func byTaste(rest pushmeshv1.RankPolicy_Rest, window time.Duration) *pushmeshv1.RankPolicy {
	return &pushmeshv1.RankPolicy{
		Window: durationpb.New(window), Deadline: durationpb.New(5 * time.Second), Rest: rest,
		Expression: &pushmeshv1.ExpressionScorer{Expression: "features.sport * profile.sport + features.art * profile.art"},
	}
}

// showRanked tells payload, score and how a message came.
func showRanked(payload []byte, score float64, unranked bool) string {
	switch {
	case unranked:
		return string(payload) + " unranked"
	case score != 0:
		return fmt.Sprintf("%s:%g", payload, score)
	}
	return string(payload)
}

// rankedCome reads what comes of a ranked subscription, and Progress as come does.
func rankedCome(t *testing.T, c *wireclient.Client, n int) (got []string) {
	t.Helper()
	for range n {
		ft, body, err := c.Next(wireclient.Patience)
		if err != nil {
			t.Fatalf("%v after %v", err, got)
		}
		switch ft {
		case wirev1.FrameType_FRAME_TYPE_MESSAGE:
			var m wirev1.Message
			if err := proto.Unmarshal(body, &m); err != nil || len(m.GetSubs()) != 1 {
				t.Fatalf("%v %v", &m, err)
			}
			got = append(got, showRanked(m.GetPayload(), m.GetScore(), m.GetUnranked()))
		case wirev1.FrameType_FRAME_TYPE_PROGRESS:
			var p wirev1.Progress
			if err := proto.Unmarshal(body, &p); err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%d..%d %v", p.GetFrom(), p.GetTo(), p.GetCode()))
		default:
			got = append(got, ft.String())
		}
	}
	return got
}

// publishTastes publishes four messages, in this order, of which sport likes a, d, c and art b, c,
// d.
func publishTastes(t *testing.T, m *harness.Mesh, topic string) {
	t.Helper()
	producer := pushmeshv1.NewPublishServiceClient(m.Router(t))
	for _, one := range []struct {
		payload    string
		sport, art float64
	}{{"a", 3, 0}, {"b", 0, 3}, {"c", 1, 2}, {"d", 2, 1}} {
		if _, err := producer.Publish(t.Context(), &pushmeshv1.PublishRequest{
			Topic: topic, Payload: []byte(one.payload), Features: map[string]float64{"sport": one.sport, "art": one.art},
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// Ephemeral messages of one window come to each subscriber in the order of its own profile, the Go
// SDK's among them, and by another one once that was replaced. A machine that is so busy that four
// messages don't come within one window gets another try.
func TestRankedDelivery(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{})
	ns := &pushmeshv1.Namespace{Prefix: "news", Policy: &pushmeshv1.Policy{Rank: byTaste(pushmeshv1.RankPolicy_REST_DELIVER, time.Second)}}
	if _, err := pushmeshv1.NewNamespaceServiceClient(m.Router(t)).Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{Namespace: ns}); err != nil {
		t.Fatal(err)
	}
	fan, _ := wireclient.Connect(t, m.EdgeAddr(), &wirev1.Hello{ClientId: "fan", Profile: map[string]float64{"sport": 1}})
	for id, ok := uint32(1), false; !ok; id++ {
		fan.Send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: id, Filter: "news/all", RankTopK: 2})
		ft, _, err := fan.Next(wireclient.Patience)
		if err != nil || id > 1000 {
			t.Fatalf("the edge does not know the policy: %v", err)
		}
		if ok = ft == wirev1.FrameType_FRAME_TYPE_SUBSCRIBED; !ok {
			<-time.After(20 * time.Millisecond)
		}
	}
	painter, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{Addrs: []string{m.EdgeAddr()}, Profile: map[string]float64{"art": 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closing.Close(painter) })
	painted := make(chan string, 100)
	if _, err := painter.Subscribe(t.Context(), "news/all", func(_ context.Context, d *pushmesh.Delivery) error {
		painted <- showRanked(d.Payload, d.Score, d.Unranked)
		return nil
	}, pushmesh.WithRankTopK(4)); err != nil {
		t.Fatal(err)
	}
	try := func(wantFan, wantPainter string) {
		t.Helper()
		for tries := 1; ; tries++ {
			publishTastes(t, m, "news/all")
			gotFan, gotPainter := fmt.Sprint(rankedCome(t, fan, 4)), []string{}
			for range 4 {
				select {
				case one := <-painted:
					gotPainter = append(gotPainter, one)
				case <-time.After(wireclient.Patience):
					t.Fatalf("the SDK got %v alone", gotPainter)
				}
			}
			if gotFan == wantFan && fmt.Sprint(gotPainter) == wantPainter {
				return
			}
			if tries == 5 {
				t.Fatalf("got %s and %s, want %s and %s", gotFan, gotPainter, wantFan, wantPainter)
			}
		}
	}
	try("[a:3 d:2 b c]", "[b:3 c:2 d:1 a]")
	resp, err := pushmeshv1.NewSessionServiceClient(m.Router(t)).SetProfile(t.Context(), &pushmeshv1.SetProfileRequest{
		ClientId: "fan", Profile: map[string]float64{"art": 2},
	})
	if err != nil || resp.GetConnections() != 1 {
		t.Fatalf("%v, %v", resp, err)
	}
	try("[b:6 c:4 a d]", "[b:3 c:2 d:1 a]")
}

// A session's backlog is ranked at the edge it comes back to, the rest is RANKED_OUT and settled,
// and the Go SDK goes on where it stood.
func TestASessionsBacklogIsRanked(t *testing.T) {
	t.Parallel()
	s := newSessions(t, &pushmeshv1.Policy{Rank: byTaste(pushmeshv1.RankPolicy_REST_SKIP, 10*time.Millisecond)})
	hello := &wirev1.Hello{ClientId: "worker", Session: "s", Profile: map[string]float64{"sport": 1}}
	resume := &wirev1.Subscribe{Id: 1, Filter: "jobs/1", Ack: true, Start: wirev1.Start_START_SESSION, RankTopK: 2}
	first, _ := wireclient.Connect(t, s.EdgeAddrs[0], hello)
	first.Subscribe(resume)
	first.Close()
	s.is("s", free)
	publishTastes(t, s.Mesh, "jobs/1")
	second, _ := wireclient.Connect(t, s.EdgeAddrs[1], hello)
	second.Subscribe(resume)
	got := rankedCome(t, second, 3)
	slices.Sort(got)
	if fmt.Sprint(got) != "[2..3 CODE_RANKED_OUT a:3 d:2]" {
		t.Fatalf("got %v", got)
	}
	ack(second, &wirev1.Ack_Entry{Topic: "jobs/1", Seq: 4}, &wirev1.Ack_Entry{Topic: "jobs/1", Seq: 1})
	s.is("s", floor(4))
	second.Close()
	s.is("s", free)
	publishTastes(t, s.Mesh, "jobs/1")
	sdk, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{
		Addrs: s.EdgeAddrs[:1], ClientID: "worker", Session: "s", ProfileVector: []float32{1}, Profile: map[string]float64{"art": 1},
		OnGap: func(g pushmesh.Gap) { t.Errorf("gap %+v", g) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closing.Close(sdk) })
	took := make(chan string, 10)
	if _, err := sdk.Subscribe(t.Context(), "jobs/1", func(_ context.Context, d *pushmesh.Delivery) error {
		took <- fmt.Sprint(d.Seq, " ", showRanked(d.Payload, d.Score, d.Unranked))
		return nil
	}, pushmesh.WithAck(), pushmesh.FromSession(), pushmesh.WithRankTopK(2)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"6 b:3", "7 c:2"} {
		select {
		case one := <-took:
			if one != want {
				t.Errorf("the SDK got %s, want %s", one, want)
			}
		case <-time.After(wireclient.Patience):
			t.Fatalf("%s did not come", want)
		}
	}
	s.is("s", floor(8))
}

// What a model should rank comes unranked, in order and counted, while there is no compute node,
// and ranked again once there is one.
func TestRankedDeliveryWithoutCompute(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{})
	file, candidates, predicted := library(t, "lightgbm-binary.txt")
	if _, err := putModel(t, m.Router(t), "ctr", file); err != nil {
		t.Fatal(err)
	}
	putNamespace(t, m, "news", &pushmeshv1.Policy{Durable: true, Rank: &pushmeshv1.RankPolicy{
		Deadline: durationpb.New(5 * time.Second), Model: &pushmeshv1.ModelScorer{Name: "ctr", Version: 1},
	}})
	producer := pushmeshv1.NewPublishServiceClient(m.Router(t))
	best, ranked, plain := 0, "", []string{}
	for i := range 4 {
		if _, err := producer.Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: "news/1", Payload: fmt.Append(nil, i), Features: candidates[i].GetFeatures()}); err != nil {
			t.Fatal(err)
		}
		plain = append(plain, fmt.Sprint(i, " unranked"))
		if predicted[i][0] > predicted[best][0] {
			best = i
		}
	}
	ranked = fmt.Sprint(best) + ":"
	backlog := func() []string {
		t.Helper()
		c, _ := wireclient.Connect(t, m.EdgeAddr(), &wirev1.Hello{})
		defer c.Close()
		c.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "news/1", Start: wirev1.Start_START_EARLIEST, RankTopK: 1})
		return rankedCome(t, c, 4)
	}
	until := func(what string, good func([]string) bool) {
		t.Helper()
		for deadline := time.Now().Add(wireclient.Patience); ; {
			got := backlog()
			if good(got) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %v", what, got)
			}
		}
	}
	isRanked := func(got []string) bool { return strings.HasPrefix(got[0], ranked) }
	until("with a compute node", isRanked)
	m.StopCompute(t)
	until("without one", func(got []string) bool { return slices.Equal(got, plain) })
	for deadline := time.Now().Add(wireclient.Patience); unrankedAt(t, m) < len(plain); <-time.After(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("what came unranked is not counted")
		}
	}
	m.StartCompute(t)
	until("with one again", isRanked)
}

// unrankedAt is how many messages the first edge has counted as unranked.
func unrankedAt(t *testing.T, m *harness.Mesh) (counted int) {
	t.Helper()
	resp, err := http.Get("http://" + m.EdgeHTTP + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), " "); strings.HasPrefix(name, "pushmesh_edge_unranked_total{") {
			n, err := strconv.Atoi(value)
			if err != nil {
				t.Fatal(err)
			}
			counted += n
		}
	}
	return counted
}
