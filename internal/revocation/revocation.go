// Package revocation knows which tokens are void before they end: those of a user that were issued
// until a time, and single ones. Stores keep that, and every edge that checks tokens has a List of
// it, which a Watch keeps up to date.
package revocation

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// How long a revocation lasts.
const (
	DefaultTime = 24 * time.Hour
	MaxTime     = 400 * 24 * time.Hour
)

// Bounds of what a revocation says, in bytes: a page of them fits into one gRPC message.
const (
	MaxReason  = 256
	maxIssuer  = 256
	maxTokenID = 1 << 10
)

// CheckNames finds what is wrong with whom a revocation is of.
func CheckNames(r *pushmeshv1.Revocation) error {
	switch user, issuer, id := r.GetUser(), r.GetIssuer(), r.GetTokenId(); {
	case user == "" && issuer == "" && id == "":
		return errors.New("a revocation names a user, or an issuer and the jti of a token")
	case user != "" && (issuer != "" || id != ""):
		return errors.New("a revocation names a user, or an issuer and the jti of a token, not both")
	case user != "":
		return identity.CheckUser(user)
	case issuer == "" || id == "":
		return errors.New("a token is named by its issuer (name in the issuers file) and its jti, both")
	case len(issuer) > maxIssuer || len(id) > maxTokenID || !utf8.ValidString(issuer) || !utf8.ValidString(id) || strings.Contains(issuer+id, "\x00"):
		return fmt.Errorf("issuer and token_id must be UTF-8 without zero bytes, of %d and %d bytes at most", maxIssuer, maxTokenID)
	}
	return nil
}

// Check finds what is wrong with a revocation that is made at a time, and fills in when it ends.
func Check(r *pushmeshv1.Revocation, now time.Time) error {
	if err := CheckNames(r); err != nil {
		return err
	}
	if len(r.GetReason()) > MaxReason || !utf8.ValidString(r.GetReason()) || strings.ContainsFunc(r.GetReason(), unicode.IsControl) {
		return fmt.Errorf("reason must be UTF-8 without control characters, %d bytes at most", MaxReason)
	}
	if r.GetUntil() == 0 {
		r.Until = uint64(now.Add(DefaultTime).UnixMicro())
	}
	switch until := r.GetUntil(); {
	case until <= uint64(now.UnixMicro()):
		return errors.New("until is in the past: compare the clocks of this host and of the stores' database")
	case until > uint64(now.Add(MaxTime).UnixMicro()):
		return fmt.Errorf("until is more than %d days ahead", int(MaxTime.Hours()/24))
	}
	return nil
}
