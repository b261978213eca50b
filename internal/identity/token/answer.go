package token

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/internal/identity"
)

// maxCacheSeconds is the longest time that an answer may be used again.
const maxCacheSeconds = 3600

// Answer is what a backend says of a user when it is asked: the claims of a token, unsigned.
type Answer struct {
	Who *identity.Principal
	// Cache is how long the same question needs no other answer; 0: each time it is asked.
	Cache time.Duration
	Bytes int // of its text
}

// ReadAnswer reads an object with the claims of a token: sub and the pm_ ones mean the same, and
// one of exp (seconds since 1970) and expires_in (seconds) must be there. cache_seconds is that of
// Answer. Members of other names are passed over. Bounds are those of a token.
//
// asked is when the question was, by the mesh's clock: what is revoked later voids the answer.
func ReadAnswer(data []byte, now, asked time.Time) (*Answer, error) {
	if len(data) > MaxToken {
		return nil, fmt.Errorf("the answer is longer than %d bytes", MaxToken)
	}
	claims, err := Members(data, MaxClaims, MaxNesting)
	if err != nil {
		return nil, fmt.Errorf("the answer: claims %w", err)
	}
	who, err := principal(claims, "")
	if err != nil {
		return nil, fmt.Errorf("the answer: %w", err)
	}
	if who.Expires, err = answerEnds(claims, now); err != nil {
		return nil, fmt.Errorf("the answer: %w", err)
	}
	if who.Issued.IsZero() || who.Issued.After(asked) {
		who.Issued = asked
	}
	cache, _, err := seconds(claims, "cache_seconds", maxCacheSeconds)
	if err != nil {
		return nil, fmt.Errorf("the answer: %w", err)
	}
	return &Answer{Who: who, Cache: cache, Bytes: len(data)}, nil
}

// answerEnds is until when an answer holds.
func answerEnds(claims map[string]json.RawMessage, now time.Time) (time.Time, error) {
	exp, at, err := instant(claims, "exp")
	if err != nil {
		return time.Time{}, err
	}
	in, after, err := seconds(claims, "expires_in", 1<<31)
	switch {
	case err != nil:
		return time.Time{}, err
	case at == after:
		return time.Time{}, errors.New("one of exp and expires_in must say until when it holds")
	case after:
		exp = now.Add(in)
	}
	if !now.Before(exp) {
		return time.Time{}, errors.New("it has ended already: compare the clocks of the backend and of this host")
	}
	return exp, nil
}

// seconds is a member that is a number of seconds, of so many at most.
func seconds(in map[string]json.RawMessage, name string, most int64) (d time.Duration, there bool, err error) {
	raw, there := in[name]
	if !there {
		return 0, false, nil
	}
	var n int64
	if c := raw[0]; c < '0' || c > '9' || json.Unmarshal(raw, &n) != nil || n > most {
		return 0, true, fmt.Errorf("%s must be a whole number of seconds, 0 to %d", name, most)
	}
	return time.Duration(n) * time.Second, true, nil
}
