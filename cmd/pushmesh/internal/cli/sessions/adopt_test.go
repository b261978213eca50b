package sessions

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// busy is a router that has three sessions of a backend, and answers UNAVAILABLE for a while.
type busy struct {
	pushmeshv1.SessionServiceClient
	away  int // answers
	asked []string
}

func (b *busy) List(context.Context, *pushmeshv1.SessionServiceListRequest, ...grpc.CallOption) (*pushmeshv1.SessionServiceListResponse, error) {
	return &pushmeshv1.SessionServiceListResponse{Sessions: []*pushmeshv1.Session{{Name: "all"}, {Name: "orders all"}, {Name: "some"}}}, nil
}

func (b *busy) Adopt(_ context.Context, req *pushmeshv1.AdoptRequest, _ ...grpc.CallOption) (*pushmeshv1.AdoptResponse, error) {
	if b.away > 0 {
		b.away--
		return nil, code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, "away")
	}
	b.asked = append(b.asked, req.GetUser()+", "+req.GetName()+" to "+req.GetToUser()+", "+req.GetToName())
	return &pushmeshv1.AdoptResponse{}, nil
}

// All sessions of a backend get the name that they have behind --backends, but for those that have
// it; a router that is busy is asked again when it says, and not for ever.
func TestABackendsSessionsAreAdopted(t *testing.T) {
	for away, want := range map[int]struct {
		asked, printed string
		after          time.Duration
	}{
		0: {"backend:w, all to backend:w, orders all; backend:w, some to backend:w, orders some", "2 adopted, 0 adopted before, 0 clients without sessions, 0 failed\n", 0},
		3: {"backend:w, all to backend:w, orders all; backend:w, some to backend:w, orders some", "2 adopted, 0 adopted before, 0 clients without sessions, 0 failed\n", 3 * time.Second},
		5: {"backend:w, some to backend:w, orders some", "1 adopted, 0 adopted before, 0 clients without sessions, 1 failed\n", 4 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			api := &busy{away: away}
			var out, told strings.Builder
			a := adopter{api: api, stdio: cmdline.IO{Out: &out, Err: &told}, slots: make(chan struct{}, adoptionsAtATime)}
			c := &adopt{BackendID: "w", Backend: "orders"}
			begun := time.Now()
			a.begin(t.Context(), c.one())
			a.work.Wait()
			err := a.sum(nil)
			if got := strings.Join(api.asked, "; "); got != want.asked || out.String() != want.printed || (err != nil) != strings.Contains(want.printed, "1 failed") {
				t.Errorf("away %d times: %s, %q, %v", away, got, out.String(), err)
			}
			if took := time.Since(begun); took != want.after {
				t.Errorf("away %d times: after %s, want %s", away, took, want.after)
			}
			if failed := strings.Contains(told.String(), `"backend:w": session "all": UNAVAILABLE`); failed != (err != nil) {
				t.Errorf("away %d times: it tells %q", away, told.String())
			}
		})
	}
}

// A line gives sessions to who is meant: what spreadsheets and hands add to names does not pass for
// a part of them, since a session that was given to a user is no other's again.
func TestLinesOfAdoptions(t *testing.T) {
	for _, c := range []struct {
		text string
		line int
		want adoption // of names alone; none: there is nothing in it
		bad  bool
	}{
		{text: "\ufeffclient,user", line: 1},
		{text: "\ufeffphone,ann\r", line: 1, want: adoption{Client: "phone", User: "ann"}},
		{text: "phone, ann", line: 2, want: adoption{Client: "phone", User: "ann"}},
		{text: "phone,ann ,inbox", line: 2, bad: true},
		{text: "phone ,ann", line: 2, bad: true},
		{text: `phone,"ann "`, line: 2, bad: true},
		{text: `{"client": "phone", "user": "ann "}`, line: 2, want: adoption{Client: "phone", User: "ann "}},
		{text: "client,user", line: 2, want: adoption{Client: "client", User: "user"}},
		{text: "", line: 3},
	} {
		got, err := parseAdoption(c.text, c.line)
		switch {
		case (err != nil) != c.bad:
			t.Errorf("%q: %v", c.text, err)
		case err != nil:
		case got == nil:
			if c.want != (adoption{}) {
				t.Errorf("%q says nothing", c.text)
			}
		case got.Client != c.want.Client || got.User != c.want.User || got.Session != c.want.Session:
			t.Errorf("%q: %+v", c.text, got)
		}
	}
}
