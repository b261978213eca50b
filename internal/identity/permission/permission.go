// Package permission asks a backend by HTTP or gRPC whether somebody may do something, in the form
// of the Authorization API of AuthZEN 1.0 (https://openid.net/specs/authorization-api-1_0.html),
// which policy engines answer.
package permission

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/identity/caller"
	"github.com/pushmesh/pushmesh/internal/outbound"
	"github.com/pushmesh/pushmesh/internal/recent"
	"github.com/pushmesh/pushmesh/proto/gen/hookv1"
)

// DefaultCache is that of a Config's CacheBytes.
const DefaultCache = 16 << 20

// Config of a Hook.
type Config struct {
	URL    string
	Guard  *outbound.Guard
	Secret *outbound.Secret // signs questions; nil: they are not signed
	// Timeout of a question, and of its wait for a turn before that; UnderWay is how many there are
	// at a time; CacheBytes is kept for answers. 0: the default.
	Timeout    time.Duration
	UnderWay   int
	CacheBytes int
	// Edge is the edge's id, as the backend is told.
	Edge string
	Log  *slog.Logger
	// Registry gets the metrics, whose names begin with pushmesh_TIER_; nil: there are none.
	Registry prometheus.Registerer
	Tier     string
}

// Hook is a lifecycle.Part, safe for concurrent use.
type Hook struct {
	*caller.Caller
	edge string

	mu    sync.Mutex
	cache *recent.Cache[hash, kept]
}

// kept is an answer that may be used again.
type kept struct {
	says  says
	until time.Time
}

// New makes a hook; the error is that of a URL which is not called.
func New(cfg Config) (*Hook, error) {
	c, err := caller.New(caller.Config{
		Flag: "--permission-hook", Metric: "permission_hook", Subject: "what clients may do", Refused: "what it would have to grant is refused with UNAVAILABLE",
		Asked: "Permissions that the backend of --permission-hook was asked for, by what came of it: ok (it said yes or no), cached (an answer from before), or the code of the refusal.",
		URL:   cfg.URL, Form: form, Guard: cfg.Guard, Secret: cfg.Secret, Timeout: cfg.Timeout, UnderWay: cfg.UnderWay, Most: maxAnswer, Log: cfg.Log, Registry: cfg.Registry, Tier: cfg.Tier,
	})
	if err != nil {
		return nil, err
	}
	if cfg.CacheBytes <= 0 {
		cfg.CacheBytes = DefaultCache
	}
	return &Hook{Caller: c, edge: cfg.Edge, cache: recent.New[hash, kept](cfg.CacheBytes)}, nil
}

// form is that of questions by gRPC.
var form = &caller.Form{
	Method:   hookv1.HookService_Evaluate_FullMethodName,
	Request:  func() proto.Message { return &hookv1.EvaluateRequest{} },
	Response: func() proto.Message { return &hookv1.EvaluateResponse{} },
	// a no is written, too: an answer without a decision is none
	JSON: protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal,
}

// hash of a question: all that the backend is told.
type hash [sha256.Size]byte

// hashOf is computed on event loops.
func hashOf(q *identity.Question) hash {
	all := make([]byte, 0, 512)
	for _, text := range [...]string{q.User, q.Client, q.Issuer, q.Address, q.Filter, q.Group} {
		all = binary.AppendUvarint(all, uint64(len(text)))
		all = append(all, text...)
	}
	return sha256.Sum256(append(all, byte(q.Verb)))
}

// Known is an answer from before that may be used again; false: there is none. It does not wait.
func (h *Hook) Known(q *identity.Question) (identity.Permission, bool) {
	p, known := h.known(hashOf(q), time.Now())
	if known {
		h.Cached()
	}
	return p, known
}

func (h *Hook) known(of hash, now time.Time) (identity.Permission, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k, ok := h.cache.Get(of)
	if !ok {
		return identity.Permission{}, false
	}
	left := k.until.Sub(now)
	if left <= 0 {
		h.cache.Remove(of)
		return identity.Permission{}, false
	}
	return k.says.permission(left), true
}

// entryBytes is what an answer takes in the cache beside its reason.
const entryBytes = 256

// Ask asks the backend, whatever is known from before. The error is a *code.Error, UNAVAILABLE (no
// answer, or none that can be used) or OVERLOADED (no turn), which says when to try again.
func (h *Hook) Ask(ctx context.Context, q *identity.Question) (identity.Permission, error) {
	var k kept
	if err := h.Caller.Ask(ctx, h.request(q), func(a *caller.Answer) (err error) {
		if a.Status != http.StatusOK {
			return a.Unusable("yes and no have status 200")
		}
		k.says, err = readAnswer(a.Data)
		k.until = a.Asked.Add(k.says.cache)
		return err
	}); err != nil {
		return identity.Permission{}, err
	}
	left := time.Until(k.until)
	if left <= 0 { // the answer took as long as it may be used: this one question has it
		return k.says.permission(0), nil
	}
	h.mu.Lock()
	h.cache.Put(hashOf(q), k, entryBytes+len(k.says.reason))
	h.mu.Unlock()
	return k.says.permission(left), nil
}
