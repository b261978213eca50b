package auth

import (
	"cmp"
	"fmt"
	"os"
	"time"

	"github.com/pushmesh/pushmesh/internal/identity/token"
)

// keys is where the keys of an issuer were read, and how old that is as far as it can be known.
type keys struct {
	From string `json:"from"`
	// Changed is when the file was changed; "": they were fetched from a URL just now.
	Changed string `json:"changed,omitempty"`

	changed time.Time
}

// keysOf is where the keys of an issuer are, by its name; nil: there is no such issuer.
func keysOf(issuers []token.Issuer, name string) *keys {
	for i := range issuers {
		is := &issuers[i]
		if is.Name != name {
			continue
		}
		if file := cmp.Or(is.KeysFile, is.SecretFile); file != "" {
			k := &keys{From: file}
			if info, err := os.Stat(file); err == nil {
				k.changed, k.Changed = info.ModTime(), showTime(info.ModTime())
			}
			return k
		}
		if is.JWKSURL != "" {
			return &keys{From: is.JWKSURL}
		}
		return &keys{From: "the discovery of " + is.URL}
	}
	return nil
}

// show says it for people.
func (k *keys) show(now time.Time) string {
	if k.changed.IsZero() {
		return fmt.Sprintf("fetched from %s just now; those of an edge may be older (pushmesh_edge_issuer_keys_age_seconds)", k.From)
	}
	return fmt.Sprintf("read from %s, which was changed %s ago", k.From, max(now.Sub(k.changed), 0).Round(time.Second))
}
