// Package hook asks a backend by HTTP or gRPC who somebody is: for clients whose token is none that
// an issuer of the mesh has signed, or who have none.
package hook

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/identity/caller"
	"github.com/pushmesh/pushmesh/internal/identity/token"
	"github.com/pushmesh/pushmesh/internal/outbound"
	"github.com/pushmesh/pushmesh/proto/gen/hookv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// DefaultCache is that of a Config's CacheBytes.
const DefaultCache = 16 << 20

// Question is who says Hello, as the backend is asked in JSON. What the client says proves nothing
// but for the token, which is the backend's to judge.
type Question struct {
	Token   string `json:"token,omitempty"`
	Client  string `json:"client_id,omitempty"`
	Session string `json:"session,omitempty"`
	Address string `json:"address,omitempty"` // the client's, without a port
	Edge    string `json:"edge,omitempty"`
	// Cookie is the header of a browser's request, where the edge hands it on.
	Cookie string `json:"cookie,omitempty"`
}

// Config of a Hook.
type Config struct {
	URL    string
	Guard  *outbound.Guard
	Secret *outbound.Secret // signs questions; nil: they are not signed
	// Timeout of a question, and of its wait for a turn before that; UnderWay is how many there are
	// at a time; CacheBytes is kept for answers that may be used again. 0: the default.
	Timeout    time.Duration
	UnderWay   int
	CacheBytes int
	// Clock says what time it is in the mesh at a time of this process's; it must not block. nil:
	// the same.
	Clock func(time.Time) time.Time
	Log   *slog.Logger
	// Registry gets the metrics, whose names begin with pushmesh_TIER_; nil: there are none.
	Registry prometheus.Registerer
	Tier     string
}

// Hook is a lifecycle.Part, safe for concurrent use.
type Hook struct {
	*caller.Caller
	cache *cache
}

// New makes a hook; the error is that of a URL which is not called.
func New(cfg Config) (*Hook, error) {
	c, err := caller.New(caller.Config{
		Flag: "--connect-hook", Metric: "connect_hook", Subject: "who clients are", Refused: "clients are refused with UNAVAILABLE",
		Asked: "Clients that the backend of --connect-hook was asked about, by what came of it: ok, cached (an answer from before), or the code of the refusal.",
		URL:   cfg.URL, Form: form, Guard: cfg.Guard, Secret: cfg.Secret, Timeout: cfg.Timeout, UnderWay: cfg.UnderWay, Most: token.MaxToken, Clock: cfg.Clock, Log: cfg.Log, Registry: cfg.Registry, Tier: cfg.Tier,
	})
	if err != nil {
		return nil, err
	}
	if cfg.CacheBytes <= 0 {
		cfg.CacheBytes = DefaultCache
	}
	return &Hook{Caller: c, cache: newCache(cfg.CacheBytes)}, nil
}

// form is that of questions by gRPC.
var form = &caller.Form{
	Method:   hookv1.HookService_Connect_FullMethodName,
	Request:  func() proto.Message { return &hookv1.ConnectRequest{} },
	Response: func() proto.Message { return &hookv1.ConnectResponse{} },
	JSON: func(m proto.Message) ([]byte, error) {
		return protojson.Marshal(m.(*hookv1.ConnectResponse).GetClaims())
	},
}

// Known is who somebody is by an answer that may be used again; nil: Ask is to find that out. It
// does not wait.
func (h *Hook) Known(q *Question) *identity.Principal {
	who := h.cache.get(q.hash(), time.Now())
	if who != nil {
		h.Cached()
	}
	return who
}

// Ask asks the backend. The error is a *code.Error: UNAUTHENTICATED refuses for good, UNAVAILABLE
// (no answer, or none that can be used) and OVERLOADED (no turn) say when to try again. Whatever
// fails, nobody is let in. What is returned is shared, and must not be changed.
func (h *Hook) Ask(ctx context.Context, q *Question) (*identity.Principal, error) {
	var says *token.Answer
	if err := h.Caller.Ask(ctx, q, func(a *caller.Answer) (err error) {
		says, err = read(a)
		return err
	}); err != nil {
		return nil, err
	}
	if says.Cache > 0 {
		h.cache.put(q.hash(), says, time.Now())
	}
	return says.Who, nil
}

// read makes of an answer what it says.
func read(a *caller.Answer) (*token.Answer, error) {
	switch a.Status {
	case http.StatusOK:
		return token.ReadAnswer(a.Data, time.Now(), a.InMesh)
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, code.New(wirev1.Code_CODE_UNAUTHENTICATED, "the backend does not let the client in"+reason(a.Data))
	}
	return nil, a.Unusable("200 lets in, 401 and 403 refuse")
}

// reason is what a refusal says to the client.
func reason(data []byte) string {
	var says struct {
		Reason string `json:"reason"`
	}
	if json.Unmarshal(data, &says) != nil {
		return ""
	}
	return caller.Reason(says.Reason)
}
