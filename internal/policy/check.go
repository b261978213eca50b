package policy

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Bounds of a policy's fields.
const (
	MaxRetention    = 366 * 24 * time.Hour
	MaxDedupeWindow = 24 * time.Hour
	// MaxMaxPayload leaves room for topic and headers in a frame and in a NATS message of 1 MiB.
	MaxMaxPayload = 768 << 10
	// MaxMaxKept bounds what the stores have to know of topics that keep a message.
	MaxMaxKept = 10_000_000
	// MaxPrefix leaves room for "$dead/" in front of a prefix.
	MaxPrefix = topic.MaxLen - len(Dead+"/")
)

// Rule is a further check of a namespace, for processes that know more than this package.
type Rule func(ns *pushmeshv1.Namespace) error

// Check finds every fault of a namespace, joined with errors.Join.
func Check(ns *pushmeshv1.Namespace, rules ...Rule) error {
	errs := []error{checkPrefix(ns.GetPrefix()), checkKnown("namespace", ns.ProtoReflect())}
	if why := ns.GetNotUnderstood(); why != "" {
		errs = append(errs, fmt.Errorf("not_understood is set: %s", why))
	}
	p := ns.GetPolicy()
	if p == nil {
		return errors.Join(append(errs, errors.New("policy is missing"))...)
	}
	errs = append(errs,
		checkDuration("retention", p.GetRetention(), time.Second, MaxRetention),
		checkDuration("ack_timeout", p.GetAckTimeout(), 10*time.Millisecond, time.Hour),
		checkDuration("dedupe_window", p.GetDedupeWindow(), time.Second, MaxDedupeWindow),
		checkMost("max_redeliveries", p.GetMaxRedeliveries(), 100),
		checkMost("max_attempts", p.GetMaxAttempts(), maxAttempts),
		checkMost("max_payload", p.GetMaxPayload(), MaxMaxPayload),
		checkMost("producer_rate", p.GetProducerRate(), 10_000_000),
		checkMost("producer_in_flight", p.GetProducerInFlight(), 1_000_000),
		checkMost("client_presence_members", p.GetClientPresenceMembers(), MaxClientPresenceMembers),
	)
	if p.GetRank() != nil {
		errs = append(errs, checkRank(p.GetRank()))
	}
	if p.GetClaims() != nil {
		errs = append(errs, checkClaims(p.GetClaims()))
	}
	if t := p.GetDeadLetterTopic(); t != "" {
		if err := topic.Check(t); err != nil {
			errs = append(errs, fmt.Errorf("dead_letter_topic: %w", err))
		} else if topic.Under(Audit, t) {
			errs = append(errs, fmt.Errorf("dead_letter_topic %.100q: nobody but the mesh may publish there", t))
		}
	}
	if topic.Under(Audit, ns.GetPrefix()) && !p.GetDurable() {
		errs = append(errs, fmt.Errorf("%s must be durable: its messages are records of changes", ns.GetPrefix()))
	}
	if _, known := wirev1.Overflow_name[int32(p.GetOverflow())]; !known {
		errs = append(errs, fmt.Errorf("overflow %d is not known", p.GetOverflow()))
	}
	if _, known := pushmeshv1.ClientSubscribe_name[int32(p.GetClientSubscribe())]; !known {
		errs = append(errs, fmt.Errorf("client_subscribe %d is not known", p.GetClientSubscribe()))
	}
	if _, known := pushmeshv1.ClientHistory_name[int32(p.GetClientHistory())]; !known {
		errs = append(errs, fmt.Errorf("client_history %d is not known", p.GetClientHistory()))
	}
	if _, known := pushmeshv1.ClientPresence_name[int32(p.GetClientPresence())]; !known {
		errs = append(errs, fmt.Errorf("client_presence %d is not known", p.GetClientPresence()))
	}
	errs = append(errs, checkKeep(ns.GetPrefix(), p))
	for _, rule := range rules {
		errs = append(errs, rule(ns))
	}
	return errors.Join(errs...)
}

// checkKeep refuses what could not be kept, or would be kept for nobody.
func checkKeep(prefix string, p *pushmeshv1.Policy) error {
	if _, known := pushmeshv1.Keep_name[int32(p.GetKeep())]; !known {
		return fmt.Errorf("keep %d is not known", p.GetKeep())
	}
	if err := checkMost("max_kept", p.GetMaxKept(), MaxMaxKept); err != nil {
		return err
	}
	switch {
	case p.GetKeep() != pushmeshv1.Keep_KEEP_LAST && p.GetMaxKept() > 0:
		return errors.New("max_kept is set without keep LAST")
	case p.GetKeep() != pushmeshv1.Keep_KEEP_LAST:
		return nil
	case !p.GetDurable():
		return errors.New("keep LAST needs durable: topics that are not have no log to keep a message of")
	case strings.HasPrefix(prefix, "$"):
		return fmt.Errorf("keep LAST: topics under %s are the mesh's own", prefix)
	case p.GetClientHistory() == pushmeshv1.ClientHistory_CLIENT_HISTORY_NONE:
		return errors.New("keep LAST does not go with client_history NONE: what is kept was published before a client subscribed")
	}
	return nil
}

func checkPrefix(prefix string) error {
	if err := topic.Check(prefix); err != nil {
		return fmt.Errorf("prefix: %w", err)
	}
	if len(prefix) > MaxPrefix {
		return fmt.Errorf("prefix has %d bytes, at most %d", len(prefix), MaxPrefix)
	}
	if strings.HasPrefix(prefix, "$") && prefix != Dead && !events.IsEvent(prefix) && !topic.Under(Audit, prefix) {
		return fmt.Errorf("prefix %q: what starts with $ is the mesh's own", prefix)
	}
	return nil
}

func checkDuration(name string, d *durationpb.Duration, low, high time.Duration) error {
	if d == nil {
		return nil
	}
	if err := d.CheckValid(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if v := d.AsDuration(); v != 0 && (v < low || v > high) {
		return fmt.Errorf("%s is %v, must be %v to %v (0: the default)", name, v, low, high)
	}
	return nil
}

func checkMost(name string, v, most uint32) error {
	if v > most {
		return fmt.Errorf("%s is %d, at most %d", name, v, most)
	}
	return nil
}
