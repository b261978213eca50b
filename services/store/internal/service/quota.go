package service

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// Quotas of sessions.
type Quotas struct {
	backend.Quota
	// TTL is the longest that a client may ask for.
	TTL time.Duration
}

// defaultTTL is that of a session whose client asks for none.
const defaultTTL = 7 * 24 * time.Hour

// fullPause is when to come back to a database with as many sessions as it may have, at least; it
// is spread over as long again.
const fullPause = 30 * time.Second

// quotas says no, and counts it.
type quotas struct {
	Quotas
	refusals *prometheus.CounterVec
}

func newQuotas(q Quotas, r prometheus.Registerer) *quotas {
	v := promauto.With(r).NewCounterVec(prometheus.CounterOpts{
		Name: "pushmesh_store_sessions_refused_total",
		Help: "Sessions that were not created because there were too many, by bound: user (--user-sessions), address (--address-sessions), all (--max-sessions).",
	}, []string{"bound"})
	for _, b := range []backend.Bound{backend.BoundUser, backend.BoundAddress, backend.BoundAll} {
		v.WithLabelValues(string(b))
	}
	return &quotas{Quotas: q, refusals: v}
}

// ttl refuses a TTL that is too long, and gives one that nobody asked for its bound. It is about
// what clients ask for: groups, which edges keep, have theirs.
func (q *quotas) ttl(req *meshv1.AttachSessionRequest) error {
	if req.GetUser() == backend.GroupUser {
		return nil
	}
	most := uint32(q.TTL / time.Second)
	switch {
	case req.GetTtlS() > most:
		return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, fmt.Sprintf("session_ttl_s is %d, at most %d (--max-session-ttl)", req.GetTtlS(), most))
	case req.GetTtlS() == 0 && q.TTL < defaultTTL:
		req.TtlS = most
	}
	return nil
}

// refused is an answer to the client where err is about a quota; else err.
func (q *quotas) refused(err error) error {
	var many *backend.TooManySessions
	if !errors.As(err, &many) {
		return err
	}
	q.refusals.WithLabelValues(string(many.Bound)).Inc()
	switch many.Bound {
	case backend.BoundUser:
		return code.New(wirev1.Code_CODE_TOO_MANY_SUBSCRIPTIONS, fmt.Sprintf("this user has %d durable sessions, which is the most (--user-sessions)", many.Most))
	case backend.BoundAddress:
		return code.New(wirev1.Code_CODE_TOO_MANY_SUBSCRIPTIONS,
			fmt.Sprintf("%d durable sessions were created from this address, which is the most (--address-sessions)", many.Most))
	}
	return code.Retry(wirev1.Code_CODE_OVERLOADED, fullPause+rand.N(fullPause), fmt.Sprintf("the mesh has %d durable sessions, which is the most (--max-sessions)", many.Most))
}
