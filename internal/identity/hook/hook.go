// Package hook asks a backend by HTTP who somebody is: for clients whose token is none that an
// issuer of the mesh has signed, or who have none.
package hook

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/identity/token"
	"github.com/pushmesh/pushmesh/internal/outbound"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Defaults of a Config.
const (
	DefaultTimeout  = 3 * time.Second
	DefaultUnderWay = 256
	DefaultCache    = 16 << 20
)

const (
	// idle is how long an unused connection to the backend is kept.
	idle = 90 * time.Second
	// failuresToOpen in a row have nobody asked for openFor; then one question is tried.
	failuresToOpen = 10
	openFor        = 2 * time.Second
	// tellEvery is how often the log tells of faults.
	tellEvery = 10 * time.Second
	// mostRetry is the longest time to come back that a backend may say.
	mostRetry = 5 * time.Minute
	// mostReason bytes of why it refuses are told to the client.
	mostReason = 200
)

// Question is who says Hello, as the backend is asked in JSON. What the client says proves nothing
// but for the token, which is the backend's to judge.
type Question struct {
	Token   string `json:"token,omitempty"`
	Client  string `json:"client_id,omitempty"`
	Session string `json:"session,omitempty"`
	Address string `json:"address,omitempty"` // the client's, without a port
	Edge    string `json:"edge,omitempty"`
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
	cfg     Config
	client  *http.Client
	end     func()
	room    chan struct{}
	breaker circuitbreaker.CircuitBreaker[any]
	cache   *cache
	metrics *metrics
	told    atomic.Int64 // when the log told last of a fault, Unix s
}

// New makes a hook; the error is that of a URL which is not called.
func New(cfg Config) (*Hook, error) {
	if _, err := outbound.CheckURL(cfg.URL); err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Clock == nil {
		cfg.Clock = func(now time.Time) time.Time { return now }
	}
	cfg.Timeout = orDefault(cfg.Timeout, DefaultTimeout)
	h := &Hook{
		cfg: cfg, room: make(chan struct{}, orDefault(cfg.UnderWay, DefaultUnderWay)), cache: newCache(orDefault(cfg.CacheBytes, DefaultCache)),
		breaker: circuitbreaker.NewBuilder[any]().WithFailureThreshold(failuresToOpen).WithDelay(openFor).WithSuccessThreshold(1).Build(),
	}
	h.client, h.end = cfg.Guard.Client(idle)
	h.metrics = newMetrics(h, cfg.Tier, cfg.Registry)
	return h, nil
}

func orDefault[T int | time.Duration](v, d T) T {
	if v <= 0 {
		return d
	}
	return v
}

// Start has nothing to begin.
func (h *Hook) Start(context.Context) error { return nil }

// Stop closes connections that are not in use.
func (h *Hook) Stop(context.Context) error {
	h.end()
	return nil
}

// Check reports that the backend fails.
func (h *Hook) Check() error {
	if err := h.cfg.Secret.Check(); err != nil {
		return err
	}
	if h.breaker.State() != circuitbreaker.ClosedState {
		return errors.New("the backend of --connect-hook does not answer: clients are refused with UNAVAILABLE")
	}
	return nil
}

// Known is who somebody is by an answer that may be used again; nil: Ask is to find that out. It
// does not wait.
func (h *Hook) Known(q *Question) *identity.Principal {
	who := h.cache.get(q.hash(), time.Now())
	if who != nil {
		h.metrics.done(resultCached, 0)
	}
	return who
}

// Ask asks the backend. The error is a *code.Error: UNAUTHENTICATED refuses for good, UNAVAILABLE
// (no answer, or none that can be used) and OVERLOADED (no turn) say when to try again. Whatever
// fails, nobody is let in. What is returned is shared, and must not be changed.
func (h *Hook) Ask(ctx context.Context, q *Question) (*identity.Principal, error) {
	turn, cancel := context.WithTimeout(ctx, h.cfg.Timeout)
	defer cancel()
	select {
	case h.room <- struct{}{}:
		defer func() { <-h.room }()
	case <-turn.Done():
		h.metrics.done(code.Name(wirev1.Code_CODE_OVERLOADED), 0)
		return nil, code.Retry(wirev1.Code_CODE_OVERLOADED, time.Second, "too many clients wait for the backend that says who they are")
	}
	if !h.breaker.TryAcquirePermit() {
		h.metrics.done(code.Name(wirev1.Code_CODE_UNAVAILABLE), 0)
		return nil, unavailable(openFor)
	}
	// a time of its own: that there is a crowd is no fault of the backend's, which the breaker
	// counts
	ctx, cancel = context.WithTimeout(ctx, h.cfg.Timeout)
	defer cancel()
	began := time.Now()
	answer, answered, err := h.ask(ctx, q)
	if answered { // a client may well be why the answer is one that can't be used
		h.breaker.RecordSuccess()
	} else {
		h.breaker.RecordFailure()
	}
	var why *code.Error
	if err != nil && !errors.As(err, &why) {
		h.tell(err)
		why = unavailable(time.Second)
	}
	if why != nil {
		h.metrics.done(code.Name(why.Code), time.Since(began))
		return nil, why
	}
	h.metrics.done(resultOK, time.Since(began))
	if answer.Cache > 0 {
		h.cache.put(q.hash(), answer, time.Now())
	}
	return answer.Who, nil
}

// tell logs what went wrong, once in a while.
func (h *Hook) tell(err error) {
	now, last := time.Now().Unix(), h.told.Load()
	if now-last >= int64(tellEvery.Seconds()) && h.told.CompareAndSwap(last, now) {
		h.cfg.Log.Warn("the backend of --connect-hook did not answer as it must: the client was refused", "error", err)
	}
}

func unavailable(after time.Duration) *code.Error {
	return code.Retry(wirev1.Code_CODE_UNAVAILABLE, after, "the backend that says who clients are does not answer")
}

// ask makes the call. A *code.Error is the backend's refusal; answered: it works, whatever it says.
func (h *Hook) ask(ctx context.Context, q *Question) (a *token.Answer, answered bool, err error) {
	body, err := json.Marshal(q)
	if err != nil {
		return nil, false, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.cfg.URL, bytes.NewReader(body))
	if err != nil {
		return nil, false, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "pushmesh")
	if err := h.cfg.Secret.Sign(req.Header, questionID(), body); err != nil {
		return nil, false, err
	}
	asked := h.cfg.Clock(time.Now())
	resp, err := h.client.Do(req)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, token.MaxToken+1))
	if err != nil {
		return nil, false, err
	}
	a, err = read(resp, data, asked)
	return a, resp.StatusCode/100 != 5, err
}

// read makes of an answer what it says.
func read(resp *http.Response, data []byte, asked time.Time) (*token.Answer, error) {
	switch status := resp.StatusCode; status {
	case http.StatusOK:
		return token.ReadAnswer(data, time.Now(), asked)
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, code.New(wirev1.Code_CODE_UNAUTHENTICATED, "the backend does not let the client in"+reason(data))
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
			return nil, code.Retry(wirev1.Code_CODE_UNAVAILABLE, min(time.Duration(s)*time.Second, mostRetry), "the backend that says who clients are asks to come back later")
		}
		fallthrough
	default:
		return nil, fmt.Errorf("its answer has status %d (200 lets in, 401 and 403 refuse; redirects are not followed)", status)
	}
}

// reason is what a refusal says to the client.
func reason(data []byte) string {
	var says struct {
		Reason string `json:"reason"`
	}
	if json.Unmarshal(data, &says) != nil || says.Reason == "" || len(says.Reason) > mostReason {
		return ""
	}
	return ": " + clean(says.Reason)
}

// clean leaves control characters out.
func clean(s string) string {
	return string(bytes.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return -1
		}
		return r
	}, []byte(s)))
}

func questionID() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // which never fails
	return "connect_" + hex.EncodeToString(b[:])
}
