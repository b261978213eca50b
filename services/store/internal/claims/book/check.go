package book

import (
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// maxOwner bytes of an owner's name.
const maxOwner = 255

func invalid(format string, args ...any) error {
	return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, fmt.Sprintf(format, args...))
}

// check says what is wrong with an operation whatever there is at its resource: INVALID_ARGUMENT.
func check(op *Op) error {
	if err := topic.Check(op.GetResource()); err != nil {
		return invalid("resource: %v", err)
	}
	kind := op.GetKind()
	ownerless := kind == meshv1.ClaimOp_KIND_CHECK || kind == meshv1.ClaimOp_KIND_WATCH || kind == meshv1.ClaimOp_KIND_UNWATCH
	if n := len(op.GetOwner()); n > maxOwner || n == 0 && !ownerless {
		return invalid("owner has %d bytes, not 1 to %d", n, maxOwner)
	}
	switch kind {
	case meshv1.ClaimOp_KIND_ACQUIRE:
		if op.GetPriority() > policy.MaxPriority {
			return invalid("priority %d is more than %d", op.GetPriority(), policy.MaxPriority)
		}
		return checkTTL(op)
	case meshv1.ClaimOp_KIND_RENEW:
		if op.GetToken() == 0 {
			return invalid("no token")
		}
		return checkTTL(op)
	case meshv1.ClaimOp_KIND_RELEASE:
		if op.GetToken() == 0 {
			return invalid("no token")
		}
		return checkSuccessor(op)
	case meshv1.ClaimOp_KIND_CHECK, meshv1.ClaimOp_KIND_LEAVE, meshv1.ClaimOp_KIND_UNTIE:
		return nil
	case meshv1.ClaimOp_KIND_WATCH, meshv1.ClaimOp_KIND_UNWATCH:
		if op.Node == "" {
			return invalid("no node watches")
		}
		return nil
	}
	return invalid("unknown operation %d", kind)
}

func checkTTL(op *Op) error {
	if ttl := milliseconds(op.GetTtlMs()); ttl != 0 && ttl < policy.MinClaimTTL {
		return invalid("ttl %v is less than %v", ttl, policy.MinClaimTTL)
	}
	return nil
}

// checkMaxTTL is apart, since an owner that has a place already may repeat what was right when it
// came.
func checkMaxTTL(op *Op, c *policy.Claims) error {
	if ttl := milliseconds(op.GetTtlMs()); ttl > c.MaxTTL {
		return invalid("ttl %v is more than %v", ttl, c.MaxTTL)
	}
	return nil
}

func checkSuccessor(op *Op) error {
	switch n := op.GetSuccessor(); {
	case len(n) > maxOwner:
		return invalid("successor has %d bytes, not 1 to %d", len(n), maxOwner)
	case n == op.GetOwner():
		return invalid("an owner is not its own successor")
	}
	return nil
}

func milliseconds(ms uint32) time.Duration { return time.Duration(ms) * time.Millisecond }
