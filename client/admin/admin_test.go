package admin

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// router is a connection to one that answers as the test says, one answer after the other: a
// message, or an error.
type router struct {
	answers []any
	asked   []string // the calls, with what they ask
}

func (r *router) note(method string, m any) {
	r.asked = append(r.asked, strings.Join(strings.Fields(path.Base(method)+" "+m.(proto.Message).(interface{ String() string }).String()), " "))
}

func (r *router) next(ctx context.Context, into any) error {
	if ctx.Err() != nil || len(r.answers) == 0 {
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}
	answer := r.answers[0]
	r.answers = r.answers[1:]
	if err, ok := answer.(error); ok {
		return err
	}
	proto.Merge(into.(proto.Message), answer.(proto.Message))
	return nil
}

func (r *router) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	r.note(method, args)
	return r.next(ctx, reply)
}

func (r *router) NewStream(ctx context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	if len(r.answers) > 0 {
		if err, ok := r.answers[0].(error); ok && !errors.Is(err, io.EOF) {
			r.answers = r.answers[1:]
			return nil, err
		}
	}
	return &stream{r, ctx, method}, nil
}

type stream struct {
	r      *router
	ctx    context.Context
	method string
}

func (s *stream) Header() (metadata.MD, error) { return nil, nil }
func (s *stream) Trailer() metadata.MD         { return nil }
func (s *stream) CloseSend() error             { return nil }
func (s *stream) Context() context.Context     { return s.ctx }
func (s *stream) RecvMsg(m any) error          { return s.r.next(s.ctx, m) }

func (s *stream) SendMsg(m any) error {
	if part, ok := m.(*pushmeshv1.PutModelRequest); ok {
		m = &pushmeshv1.PutModelRequest{Name: part.GetName(), Comment: string(rune('0' + len(part.GetData())>>18))}
	}
	s.r.note(s.method, m)
	return nil
}

func refusal(c codes.Code, reason string, after time.Duration) error {
	st, err := status.New(c, "not now").WithDetails(&errdetails.ErrorInfo{Reason: reason}, &errdetails.RetryInfo{RetryDelay: durationpb.New(after)})
	if err != nil {
		return err
	}
	return st.Err()
}

// all is what a loop over seq has, and its error.
func all[T any](seq iter.Seq2[T, error]) (got []T, err error) {
	for x, err := range seq {
		if err != nil {
			return got, err
		}
		got = append(got, x)
	}
	return got, nil
}

// Pages are asked for one after the other, and no further than the loop goes.
func TestPages(t *testing.T) {
	sessions := func(next string, names ...string) *pushmeshv1.SessionServiceListResponse {
		r := &pushmeshv1.SessionServiceListResponse{NextPageToken: next}
		for _, name := range names {
			r.Sessions = append(r.Sessions, &pushmeshv1.Session{User: "ann", Name: name})
		}
		return r
	}
	r := &router{answers: []any{sessions("b", "one", "two"), sessions("c"), sessions("", "three")}}
	got, err := all(New(r).Sessions(t.Context(), "ann"))
	if err != nil || len(got) != 3 || got[2].Name != "three" {
		t.Fatal(got, err)
	}
	if want := []string{`List user:"ann" limit:1000`, `List user:"ann" limit:1000 page_token:"b"`, `List user:"ann" limit:1000 page_token:"c"`}; !slices.Equal(r.asked, want) {
		t.Errorf("asked %q", r.asked)
	}
	r = &router{answers: []any{sessions("b", "one", "two")}}
	for s, err := range New(r).SessionSizes(t.Context(), "") {
		if err != nil || s.Name != "one" {
			t.Fatal(s, err)
		}
		break
	}
	r.answers = []any{sessions("b", "one"), refusal(codes.PermissionDenied, "FORBIDDEN", 0)}
	if got, err = all(New(r).Sessions(t.Context(), "")); len(got) != 1 || !errors.Is(err, pushmesh.ErrForbidden) {
		t.Error(got, err)
	}
}

// What edges did not say is told behind what the others did.
func TestEdgesThatAreSilent(t *testing.T) {
	page := func(next string, silent uint32) *pushmeshv1.PresenceServiceListResponse {
		return &pushmeshv1.PresenceServiceListResponse{NextPageToken: next, SilentEdges: silent, Members: []*pushmeshv1.Member{{ClientId: "ann"}}}
	}
	var missing *Incomplete
	r := &router{answers: []any{page("b", 2), page("", 0)}}
	if got, err := all(New(r).Members(t.Context(), "a")); len(got) != 2 || !errors.As(err, &missing) || missing.Edges != 2 {
		t.Error(got, err)
	}
	r.answers = []any{page("", 0)}
	if got, err := all(New(r).Members(t.Context(), "a")); len(got) != 1 || err != nil {
		t.Error(got, err)
	}
	r.answers = []any{&pushmeshv1.CountResponse{Counts: []uint64{3, 4}, SilentEdges: 1}, &pushmeshv1.CountResponse{Counts: []uint64{5}}}
	if got, err := New(r).MemberCounts(t.Context(), "a", "b"); !slices.Equal(got, []uint64{3, 4}) || !errors.As(err, &missing) || missing.Edges != 1 {
		t.Error(got, err)
	}
	if got, err := New(r).MemberCounts(t.Context(), "a"); !slices.Equal(got, []uint64{5}) || err != nil {
		t.Error(got, err)
	}
}

// What asks is asked again when the mesh said, until it is answered, refused for good, or nobody
// waits any more; what changes something is called once.
func TestWhatIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r := &router{answers: []any{
			refusal(codes.Unavailable, "DRAINING", 3*time.Second), refusal(codes.Unavailable, "", 0), &pushmeshv1.NamespaceServiceListResponse{Namespaces: []*pushmeshv1.Namespace{{Prefix: "room"}}},
		}}
		got, err := New(r).Namespaces(t.Context())
		if d := time.Since(began); err != nil || len(got) != 1 || got[0].Prefix != "room" || d < 3*time.Second || d > 5*time.Second {
			t.Errorf("after %v: %v, %v", d, got, err)
		}
		r.answers = []any{refusal(codes.NotFound, "NOT_FOUND", 0)}
		if _, err := New(r).Namespace(t.Context(), "room"); !errors.Is(err, pushmesh.ErrNotFound) {
			t.Error(err)
		}
		r.answers = []any{refusal(codes.Unavailable, "UNAVAILABLE", time.Hour)}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := New(r).Session(ctx, "ann", "phone"); !errors.Is(err, context.DeadlineExceeded) || pushmesh.CodeOf(err) != pushmesh.CodeUnavailable {
			t.Error(err)
		}
		if _, err := New(r).Models(ctx, ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		n := len(r.asked)
		r.answers = []any{refusal(codes.Unavailable, "UNAVAILABLE", 0)}
		if _, err := New(r).PutNamespace(t.Context(), "room", Policy{Durable: true}); !errors.Is(err, pushmesh.ErrUnavailable) || len(r.asked) != n+1 {
			t.Errorf("%v after %d calls", err, len(r.asked)-n)
		}
	})
}

// Each call asks what it says, and has the answer of it.
func TestCalls(t *testing.T) {
	granted := func(s wirev1.ClaimState_State) *pushmeshv1.ReleaseResponse {
		return &pushmeshv1.ReleaseResponse{State: &wirev1.ClaimState{State: s}}
	}
	for name, x := range map[string]struct {
		call   func(ctx context.Context, c *Client) (any, error)
		answer proto.Message
		asked  string
		want   any
		code   pushmesh.Code
	}{
		"put": {func(ctx context.Context, c *Client) (any, error) {
			return c.PutNamespace(ctx, "room", Policy{Durable: true, Retention: time.Minute})
		}, &pushmeshv1.NamespaceServicePutResponse{Lagging: []string{"edge.e1"}}, `Put namespace:{prefix:"room" policy:{durable:true retention:{seconds:60}}}`, []string{"edge.e1"}, 0},
		"delete": {
			func(ctx context.Context, c *Client) (any, error) { return c.DeleteNamespace(ctx, "room") },
			&pushmeshv1.NamespaceServiceDeleteResponse{Lagging: []string{"edge.e1"}}, `Delete prefix:"room"`,
			[]string{"edge.e1"},
			0,
		},
		"heads": {
			func(ctx context.Context, c *Client) (any, error) { return c.Heads(ctx, "a", "b") },
			&pushmeshv1.HeadResponse{Heads: []*pushmeshv1.TopicHead{{Topic: "a", Epoch: 1, Seq: 2, Oldest: 3}}}, `Head topics:"a" topics:"b"`,
			[]Head{{"a", 1, 2, 3}},
			0,
		},
		"delete a session": {
			func(ctx context.Context, c *Client) (any, error) { return nil, c.DeleteSession(ctx, "ann", "phone") },
			&pushmeshv1.SessionServiceDeleteResponse{}, `Delete user:"ann" name:"phone"`, nil, 0,
		},
		"adopt": {func(ctx context.Context, c *Client) (any, error) {
			return c.AdoptSession(ctx, Adoption{User: "client:ann", Name: "phone", ToUser: "ann", ToName: "p", DryRun: true})
		}, &pushmeshv1.AdoptResponse{Already: true}, `Adopt user:"client:ann" name:"phone" to_user:"ann" to_name:"p" dry_run:true`, true, 0},
		"disconnect": {func(ctx context.Context, c *Client) (any, error) {
			return c.Disconnect(ctx, Who{ClientID: "c", User: "ann"}, pushmesh.CodeForbidden, "bye")
		}, &pushmeshv1.DisconnectResponse{Disconnected: 4}, `Disconnect client_id:"c" user:"ann" code:CODE_FORBIDDEN reason:"bye"`, 4, 0},
		"profile": {func(ctx context.Context, c *Client) (any, error) {
			return c.SetProfile(ctx, Who{User: "ann"}, map[string]float64{"age": 4}, []float32{1})
		}, &pushmeshv1.SetProfileResponse{Connections: 2}, `SetProfile user:"ann" profile:{key:"age" value:4} vector:1`, 2, 0},
		"replay": {
			func(ctx context.Context, c *Client) (any, error) {
				return c.ReplayDeadLetters(ctx, Which{IDs: []uint64{1}, Filter: "#"})
			}, &pushmeshv1.DeadLetterServiceReplayResponse{Replayed: 1, Failed: 2, Failures: []*pushmeshv1.DeadLetterFailure{{Id: 3, Code: wirev1.Code_CODE_FORBIDDEN, Error: "no"}}},
			`Replay ids:1 filter:"#"`,
			Replayed{1, 2, []DeadLetterFailure{{3, pushmesh.CodeForbidden, "no"}}},
			0,
		},
		"discard": {
			func(ctx context.Context, c *Client) (any, error) {
				return c.DiscardDeadLetters(ctx, Which{Filter: "a"})
			},
			&pushmeshv1.DeadLetterServiceDiscardResponse{Discarded: 5}, `Discard filter:"a"`, uint64(5), 0,
		},
		"dead letters": {
			func(ctx context.Context, c *Client) (any, error) { return all(c.DeadLetters(ctx, "a")) },
			&pushmeshv1.DeadLetterServiceListResponse{DeadLetters: []*pushmeshv1.DeadLetter{{Id: 1}}}, `List filter:"a" limit:1000`,
			[]DeadLetter{{ID: 1}},
			0,
		},
		"delete a model": {
			func(ctx context.Context, c *Client) (any, error) { return nil, c.DeleteModel(ctx, "m", 2) },
			&pushmeshv1.DeleteModelResponse{}, `DeleteModel name:"m" version:2`, nil, 0,
		},
		"roll back": {
			func(ctx context.Context, c *Client) (any, error) { return c.RollBackModel(ctx, "m") },
			&pushmeshv1.RollBackResponse{Namespaces: []string{"a"}}, `RollBack name:"m"`,
			[]string{"a"},
			0,
		},
		"places": {
			func(ctx context.Context, c *Client) (any, error) { return all(c.Places(ctx, "seat")) },
			&pushmeshv1.ClaimServiceListResponse{Places: []*pushmeshv1.ClaimPlace{{Owner: "ann"}}}, `List resource:"seat" limit:1000`,
			[]Place{{Owner: "ann"}},
			0,
		},
		"places under": {
			func(ctx context.Context, c *Client) (any, error) { return all(c.PlacesUnder(ctx, "seat")) },
			&pushmeshv1.ClaimServiceListResponse{}, `List prefix:"seat" limit:1000`, []Place(nil), 0,
		},
		"end a hold": {
			func(ctx context.Context, c *Client) (any, error) { return nil, c.EndHold(ctx, "seat", "ann", 7) },
			granted(wirev1.ClaimState_STATE_RELEASED), `Release resource:"seat" owner:"ann" token:7`, nil, 0,
		},
		"end another's hold": {
			func(ctx context.Context, c *Client) (any, error) { return nil, c.EndHold(ctx, "seat", "ann", 7) },
			granted(wirev1.ClaimState_STATE_HELD_BY_OTHER), `Release resource:"seat" owner:"ann" token:7`, nil, pushmesh.CodeNotHeld,
		},
		"end a wait": {
			func(ctx context.Context, c *Client) (any, error) { return nil, c.EndWait(ctx, "seat", "ann") },
			&pushmeshv1.LeaveResponse{}, `Leave resource:"seat" owner:"ann"`, nil, 0,
		},
	} {
		r := &router{answers: []any{x.answer}}
		got, err := x.call(t.Context(), New(r))
		if pushmesh.CodeOf(err) != x.code || !reflect.DeepEqual(got, x.want) || len(r.asked) != 1 || r.asked[0] != x.asked {
			t.Errorf("%s: %+v, %v; asked %q, want %q", name, got, err, r.asked, x.asked)
		}
	}
}

// A log is read as it comes, up to its end, an error, or the end of the loop.
func TestReadingALog(t *testing.T) {
	part := func(seqs ...uint64) *pushmeshv1.ReadResponse {
		r := &pushmeshv1.ReadResponse{}
		for _, seq := range seqs {
			r.Messages = append(r.Messages, &pushmeshv1.StoredMessage{Topic: "a", Seq: seq})
		}
		return r
	}
	at := pushmesh.Position{Topic: "a", Epoch: 5, Seq: 1}
	r := &router{answers: []any{part(2, 3), part(4), io.EOF}}
	got, err := all(New(r).Read(t.Context(), at, 10))
	if err != nil || len(got) != 3 || got[2].Seq != 4 || r.asked[0] != `Read topic:"a" epoch:5 from_seq:2 limit:10` {
		t.Error(got, err, r.asked)
	}
	r = &router{answers: []any{part(2), refusal(codes.FailedPrecondition, "EPOCH_CHANGED", 0)}}
	if got, err := all(New(r).Read(t.Context(), at, 0)); len(got) != 1 || !errors.Is(err, pushmesh.ErrEpochChanged) {
		t.Error(got, err)
	}
	r = &router{answers: []any{refusal(codes.PermissionDenied, "FORBIDDEN", 0)}}
	if _, err := all(New(r).Read(t.Context(), at, 0)); !errors.Is(err, pushmesh.ErrForbidden) {
		t.Error(err)
	}
	r = &router{answers: []any{part(2, 3)}}
	for m, err := range New(r).Read(t.Context(), at, 0) {
		if err != nil || m.Seq != 2 {
			t.Error(m, err)
		}
		break
	}
}

// A file goes in parts, the first of which says what it is.
func TestPuttingAModel(t *testing.T) {
	r := &router{answers: []any{&pushmeshv1.PutModelResponse{Model: &pushmeshv1.Model{Name: "m", Version: 3}}}}
	m, err := New(r).PutModel(t.Context(), NewModel{Name: "m"}, bytes.NewReader(make([]byte, 5<<19)))
	// In quarters of a MiB.
	if want := []string{`PutModel name:"m" comment:"4"`, `PutModel comment:"4"`, `PutModel comment:"2"`}; err != nil || m.Version != 3 || !slices.Equal(r.asked, want) {
		t.Error(m, err, r.asked)
	}
	r = &router{answers: []any{refusal(codes.InvalidArgument, "INVALID_ARGUMENT", 0)}}
	if _, err := New(r).PutModel(t.Context(), NewModel{Name: "m"}, bytes.NewReader(nil)); !errors.Is(err, pushmesh.ErrInvalidArgument) {
		t.Error(err)
	}
	broken := errors.New("the disk is gone")
	if _, err := New(&router{}).PutModel(t.Context(), NewModel{Name: "m"}, io.MultiReader(bytes.NewReader([]byte("x")), fails{broken})); !errors.Is(err, broken) {
		t.Error(err)
	}
}

type fails struct{ error }

func (f fails) Read([]byte) (int, error) { return 0, f.error }
