package claims

import (
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/internal/claimclient"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// maxOwner bytes has an owner's name at most.
const maxOwner = 255

// maxDuration is what a store can be told, in milliseconds.
const maxDuration = math.MaxUint32 * time.Millisecond

func acquire(req *pushmeshv1.AcquireRequest) (*meshv1.ClaimOp, error) {
	m := &meshv1.ClaimOp{
		Kind: meshv1.ClaimOp_KIND_ACQUIRE, Resource: req.GetResource(), Owner: req.GetOwner(), Priority: req.GetPriority(), NoWait: req.GetNoWait(),
	}
	if err := checkNames(m); err != nil {
		return m, err
	}
	var err error
	if m.TtlMs, err = millis("ttl", req.GetTtl(), policy.MinClaimTTL); err != nil {
		return m, err
	}
	if m.WaitMs, err = millis("wait", req.GetWait(), 0); err != nil {
		return m, err
	}
	if m.GetPriority() > policy.MaxPriority {
		return m, invalid("priority is at most %d", policy.MaxPriority)
	}
	return m, nil
}

func renew(req *pushmeshv1.RenewRequest) (*meshv1.ClaimOp, error) {
	m := &meshv1.ClaimOp{Kind: meshv1.ClaimOp_KIND_RENEW, Resource: req.GetResource(), Owner: req.GetOwner(), Token: req.GetToken()}
	err := checkHold(m)
	if err == nil {
		m.TtlMs, err = millis("ttl", req.GetTtl(), policy.MinClaimTTL)
	}
	return m, err
}

func release(req *pushmeshv1.ReleaseRequest) (*meshv1.ClaimOp, error) {
	m := &meshv1.ClaimOp{
		Kind: meshv1.ClaimOp_KIND_RELEASE, Resource: req.GetResource(), Owner: req.GetOwner(), Token: req.GetToken(), Successor: req.GetSuccessor(),
	}
	if err := checkHold(m); err != nil || m.GetSuccessor() == "" {
		return m, err
	}
	if m.GetSuccessor() == m.GetOwner() {
		return m, invalid("the successor is the owner itself")
	}
	return m, checkOwner("successor", m.GetSuccessor())
}

// checkHold is checkNames for what needs a token, too.
func checkHold(m *meshv1.ClaimOp) error {
	if err := checkNames(m); err != nil {
		return err
	}
	if m.GetToken() == 0 {
		return invalid("token is missing: the answer that granted the claim has it")
	}
	return nil
}

func checkNames(m *meshv1.ClaimOp) error {
	if err := checkResource(m.GetResource()); err != nil {
		return err
	}
	return checkOwner("owner", m.GetOwner())
}

// checkResourceAndOwner is checkNames where the owner may be missing.
func checkResourceAndOwner(m *meshv1.ClaimOp) error {
	if m.GetOwner() == "" {
		return checkResource(m.GetResource())
	}
	return checkNames(m)
}

func checkResource(name string) error {
	if err := topic.Check(name); err != nil {
		return code.New(wirev1.Code_CODE_BAD_TOPIC, "resource: "+err.Error())
	}
	if name[0] == '$' {
		return code.New(wirev1.Code_CODE_FORBIDDEN, "resource: names that begin with $ are the mesh's own")
	}
	return nil
}

func checkOwner(field, name string) error {
	switch {
	case name == "":
		return invalid("%s is missing", field)
	case len(name) > maxOwner:
		return invalid("%s has %d bytes, at most %d", field, len(name), maxOwner)
	case !utf8.ValidString(name):
		return invalid("%s is not UTF-8", field)
	}
	for _, r := range name {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return invalid("%s has the control character %U", field, r)
		}
	}
	return nil
}

// millis of a duration that is at least least, rounded up; 0: there is none.
func millis(field string, p *durationpb.Duration, least time.Duration) (uint32, error) {
	if p == nil {
		return 0, nil
	}
	d := p.AsDuration()
	switch {
	case p.CheckValid() != nil || d < 0:
		return 0, invalid("%s must be a duration of 0 or more", field)
	case d == 0:
		return 0, nil
	case d < least:
		return 0, invalid("%s is %v, at least %v", field, d, least)
	case d > maxDuration:
		return 0, invalid("%s is %v, at most %v", field, d, maxDuration)
	}
	return uint32((d + time.Millisecond - 1) / time.Millisecond), nil
}

func checkList(req *pushmeshv1.ClaimServiceListRequest) error {
	switch {
	case req.GetLimit() > claimclient.MaxPage:
		return invalid("limit is at most 1,000")
	case req.GetResource() == "":
		return nil
	case req.GetPrefix() != "":
		return invalid("resource and prefix are both set")
	}
	return checkResource(req.GetResource())
}

func invalid(format string, args ...any) error {
	return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, fmt.Sprintf(format, args...))
}
