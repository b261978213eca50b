// Package caller asks a backend by HTTP or gRPC, with what every question needs: a turn, a time, a
// breaker, a signature, and an answer that is bounded.
package caller

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
	"github.com/pushmesh/pushmesh/internal/outbound"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Defaults of a Config.
const (
	DefaultTimeout  = 3 * time.Second
	DefaultUnderWay = 256
)

const (
	// idle is how long an unused connection to the backend is kept.
	idle = 90 * time.Second
	// FailuresToOpen in a row have nobody asked for openFor; then one question is tried.
	FailuresToOpen = 10
	openFor        = 2 * time.Second
	// tellEvery is how often the log tells of faults.
	tellEvery = 10 * time.Second
	// MostRetry is the longest time to come back that a backend may say.
	MostRetry = 5 * time.Minute
	// mostReason bytes of why it refuses are told to the client.
	mostReason = 200
)

// Config of a Caller.
type Config struct {
	// Flag names the URL's setting: --connect-hook. Metrics are pushmesh_TIER_METRIC_…, and ids of
	// questions begin with Metric.
	Flag, Metric string
	// Subject is what is asked about, in words: "who clients are". Asked is the help of the metric
	// of questions, Refused what becomes of clients while there is no answer.
	Subject, Asked, Refused string
	// URL is http:// or https://, or grpc://HOST:PORT or grpcs://HOST:PORT, which Form is for.
	URL    string
	Form   *Form
	Guard  *outbound.Guard
	Secret *outbound.Secret // signs questions; nil: they are not signed
	// Timeout of a question, and of its wait for a turn before that; UnderWay is how many there are
	// at a time. 0: the default.
	Timeout  time.Duration
	UnderWay int
	// Most is how many bytes of an answer are read, and one more.
	Most int
	// Clock says what time it is in the mesh at a time of this process's; it must not block. nil:
	// the same.
	Clock func(time.Time) time.Time
	Log   *slog.Logger
	// Registry gets the metrics; nil: there are none.
	Registry prometheus.Registerer
	Tier     string
}

// Caller is a lifecycle.Part, safe for concurrent use.
type Caller struct {
	cfg     Config
	client  *http.Client // nil where the backend is asked by gRPC
	grpc    *dialled
	end     func()
	room    chan struct{}
	breaker circuitbreaker.CircuitBreaker[any]
	metrics *metrics
	told    atomic.Int64 // when the log told last of a fault, Unix s
}

// New makes a caller; the error is that of a URL which is not called.
func New(cfg Config) (*Caller, error) {
	target, secure, byGRPC, err := checkGRPC(cfg.URL)
	if !byGRPC {
		if _, err = outbound.CheckURL(cfg.URL); err != nil {
			err = fmt.Errorf("%w (https://HOST/PATH, or by gRPC grpcs://HOST:PORT)", err)
		}
	}
	if err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Clock == nil {
		cfg.Clock = func(now time.Time) time.Time { return now }
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.UnderWay <= 0 {
		cfg.UnderWay = DefaultUnderWay
	}
	c := &Caller{
		cfg: cfg, room: make(chan struct{}, cfg.UnderWay),
		breaker: circuitbreaker.NewBuilder[any]().WithFailureThreshold(FailuresToOpen).WithDelay(openFor).WithSuccessThreshold(1).Build(),
	}
	if byGRPC {
		if c.grpc, err = newDialled(&c.cfg, target, secure); err != nil {
			return nil, err
		}
		c.end = func() { _ = c.grpc.conn.Close() }
	} else {
		c.client, c.end = cfg.Guard.Client(idle)
	}
	c.metrics = newMetrics(c)
	return c, nil
}

// Start has nothing to begin.
func (c *Caller) Start(context.Context) error { return nil }

// Stop closes connections that are not in use.
func (c *Caller) Stop(context.Context) error {
	c.end()
	return nil
}

// Timeout of a question, and of its wait for a turn.
func (c *Caller) Timeout() time.Duration { return c.cfg.Timeout }

// Check reports that the backend fails.
func (c *Caller) Check() error {
	if err := c.cfg.Secret.Check(); err != nil {
		return err
	}
	if c.breaker.State() != circuitbreaker.ClosedState {
		return fmt.Errorf("the backend of %s does not answer: %s", c.cfg.Flag, c.cfg.Refused)
	}
	return nil
}

// Cached counts a question that an answer from before was good for.
func (c *Caller) Cached() { c.metrics.done(resultCached, 0) }

// Answer of a backend, by HTTP or as it would be by HTTP.
type Answer struct {
	Status int
	Header http.Header
	Data   []byte
	Asked  time.Time // when the question was sent
	InMesh time.Time // the same, by the mesh's clock
}

// Ask sends q in JSON, or in the message that has the same JSON, and has read make of the answer
// what it says. A *code.Error of read is the backend's refusal, another one says that the answer
// can't be used.
//
// The error is a *code.Error: that of read, UNAVAILABLE (no answer, or none that can be used) or
// OVERLOADED (no turn), which say when to try again.
func (c *Caller) Ask(ctx context.Context, q any, read func(*Answer) error) error {
	turn, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	select {
	case c.room <- struct{}{}:
		defer func() { <-c.room }()
	case <-turn.Done():
		c.metrics.done(code.Name(wirev1.Code_CODE_OVERLOADED), 0)
		return code.Retry(wirev1.Code_CODE_OVERLOADED, time.Second, "too many questions wait for the backend that says "+c.cfg.Subject)
	}
	if !c.breaker.TryAcquirePermit() {
		c.metrics.done(code.Name(wirev1.Code_CODE_UNAVAILABLE), 0)
		return c.unavailable(openFor)
	}
	// a time of its own: that there is a crowd is no fault of the backend's, which the breaker
	// counts
	ctx, cancel = context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	began := time.Now()
	a, err := c.ask(ctx, q)
	if a != nil && a.Status/100 != 5 || errors.As(err, new(*answeredError)) {
		// a client may well be why the answer is one that can't be used
		c.breaker.RecordSuccess()
	} else {
		c.breaker.RecordFailure()
	}
	if err == nil {
		err = read(a)
	}
	var why *code.Error
	if err != nil && !errors.As(err, &why) {
		c.tell(err)
		why = c.unavailable(time.Second)
	}
	if why != nil {
		c.metrics.done(code.Name(why.Code), time.Since(began))
		return why
	}
	c.metrics.done(resultOK, time.Since(began))
	return nil
}

// tell logs what went wrong, once in a while.
func (c *Caller) tell(err error) {
	now, last := time.Now().Unix(), c.told.Load()
	if now-last >= int64(tellEvery.Seconds()) && c.told.CompareAndSwap(last, now) {
		c.cfg.Log.Warn("the backend of "+c.cfg.Flag+" did not answer as it must: "+c.cfg.Refused, "error", err)
	}
}

func (c *Caller) unavailable(after time.Duration) *code.Error {
	return code.Retry(wirev1.Code_CODE_UNAVAILABLE, after, "the backend that says "+c.cfg.Subject+" does not answer")
}

// ask makes the call.
func (c *Caller) ask(ctx context.Context, q any) (*Answer, error) {
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	id := c.questionID()
	if c.grpc != nil {
		a := &Answer{Asked: time.Now()}
		a.InMesh = c.cfg.Clock(a.Asked)
		if a.Status, a.Header, a.Data, err = c.grpc.ask(ctx, id, body); err != nil {
			return nil, err
		}
		return a, nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.cfg.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "pushmesh")
	req.Header.Set("X-Request-ID", id)
	if err := c.cfg.Secret.Sign(req.Header, id, body); err != nil {
		return nil, err
	}
	a := &Answer{Asked: time.Now()}
	a.InMesh = c.cfg.Clock(a.Asked)
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if a.Data, err = io.ReadAll(io.LimitReader(resp.Body, int64(c.cfg.Most)+1)); err != nil {
		return nil, err
	}
	a.Status, a.Header = resp.StatusCode, resp.Header
	return a, nil
}

func (c *Caller) questionID() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // which never fails
	return c.cfg.Metric + "_" + hex.EncodeToString(b[:])
}

// Unusable is the error of an answer whose status says neither yes nor no: a backend that names a
// time to come back in Retry-After is asked again then. means is what statuses mean.
func (a *Answer) Unusable(means string) error {
	if a.Status == http.StatusTooManyRequests || a.Status == http.StatusServiceUnavailable {
		if s, err := strconv.Atoi(a.Header.Get("Retry-After")); err == nil && s > 0 {
			return code.Retry(wirev1.Code_CODE_UNAVAILABLE, min(time.Duration(s)*time.Second, MostRetry), "the backend asks to come back later")
		}
	}
	return fmt.Errorf("its answer has status %d (%s; redirects are not followed)", a.Status, means)
}

// Reason is what a refusal says to the client: what is in it, without control characters; "" where
// that is too long.
func Reason(text string) string {
	if text == "" || len(text) > mostReason {
		return ""
	}
	return ": " + string(bytes.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return -1
		}
		return r
	}, []byte(text)))
}
