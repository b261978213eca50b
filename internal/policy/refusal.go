package policy

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const (
	// retryUnknown is when to come back to a process that does not know the namespaces yet.
	retryUnknown = 250 * time.Millisecond
	// retryForeign is when to come back to a program that does not understand a namespace: an
	// upgrade is under way.
	retryForeign = 2 * time.Second
	// maxAttempts of a message before it is a dead letter, at most.
	maxAttempts = 10_000
)

// refusing is the policy of topics whose policy this process does not know. Nothing new is taken
// there (Refusal). What is under way goes on by values that lose nothing, whatever the policy is:
// it may be durable, so it is repaired from the log, nothing there is out of date, and nothing is
// given up.
func refusing(prefix string, why *code.Error) *Policy {
	p := of(&pushmeshv1.Namespace{Prefix: prefix})
	p.Refusal = why
	p.Durable = true
	p.Retention, p.DedupeWindow = MaxRetention, MaxDedupeWindow
	p.MaxAttempts, p.MaxPayload = maxAttempts, MaxMaxPayload
	p.KeepLast, p.MaxKept = true, MaxMaxKept // what its topics keep stays
	// Nobody is granted a resource, and who holds one or waits for it is patiently waited for.
	p.Claims.Holders, p.Claims.MaxTTL = 0, MaxClaimTTL
	p.Claims.Grace, p.Claims.WaitTTL, p.Claims.OfferTTL = maxClaimGrace, maxClaimWaitTTL, maxClaimOffer
	return p
}

// Unknown is the table of a process that does not know the namespaces: it refuses every topic.
func Unknown(why string) *Table {
	p := refusing(Default, code.Retry(wirev1.Code_CODE_UNAVAILABLE, retryUnknown, why))
	return &Table{byPrefix: map[string]*Policy{Default: p}, fallback: p, refused: []*Policy{p}, unknown: p.Refusal}
}

// notUnderstood is the policy of a namespace that a newer program made.
func notUnderstood(ns *pushmeshv1.Namespace, why error) *Policy {
	return refusing(literal(ns.GetPrefix()), code.Retry(wirev1.Code_CODE_UNAVAILABLE, retryForeign,
		fmt.Sprintf("this version of the program does not understand namespace %q, so it takes nothing there; upgrade it or change the namespace: %s",
			ns.GetPrefix(), strings.ReplaceAll(why.Error(), "\n", "; "))))
}

// literal are the levels of a prefix that come before anything but a plain level: topics of a
// namespace whose prefix is not understood are under these. Where there is none, they are those
// that no other namespace covers.
func literal(prefix string) string {
	var plain []string
	for _, level := range strings.Split(prefix, "/") {
		if level == "" || strings.ContainsAny(level, "+#") {
			break
		}
		plain = append(plain, level)
	}
	if len(plain) == 0 {
		return Default
	}
	return strings.Join(plain, "/")
}

// checkKnown finds fields that this version of the program does not know, of the message and of all
// within.
func checkKnown(name string, m protoreflect.Message) error {
	if n := len(m.GetUnknown()); n > 0 {
		return fmt.Errorf("%s has fields of a newer version (%d bytes)", name, n)
	}
	var found error
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		path := name + "." + string(f.Name())
		switch {
		case f.Message() == nil:
		case f.IsMap():
			if f.MapValue().Message() == nil {
				break
			}
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				found = checkKnown(path, v.Message())
				return found == nil
			})
		case f.IsList():
			for i := range v.List().Len() {
				if found = checkKnown(path, v.List().Get(i).Message()); found != nil {
					break
				}
			}
		default:
			found = checkKnown(path, v.Message())
		}
		return found == nil
	})
	return found
}
