package outbound

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const (
	secretPrefix = "whsec_"
	// Bytes of a secret, by the specification.
	leastSecret, mostSecret = 24, 64
	// mostSecrets sign a request: more than one only while receivers change from one to the next.
	mostSecrets = 4
	// mostSecretFile bytes are far more than these have.
	mostSecretFile = 4 << 10
	// lookEvery is how often the file is looked at.
	lookEvery = time.Second
)

// Secret signs requests by Standard Webhooks (v1, HMAC-SHA256) with the secrets of a file, a line
// each: whsec_ and 24 to 64 bytes in base64. It reads the file again when it has changed. The nil
// Secret signs nothing. It is safe for concurrent use.
type Secret struct {
	path string
	now  func() time.Time

	mu     sync.Mutex
	keys   []*webhooks.Webhook
	looked time.Time
	fault  error // of the last look; the keys are those before
}

// OpenSecret reads a file of secrets; path "" is a nil Secret. Errors don't repeat what the file
// has.
func OpenSecret(path string, now func() time.Time) (*Secret, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // the nil Secret is one that signs nothing
	}
	s := &Secret{path: path, now: now, looked: now()}
	if err := s.read(); err != nil {
		return nil, err
	}
	return s, nil
}

// Sign adds webhook-id, webhook-timestamp and webhook-signature for a body. id is the same for a
// call that is repeated.
func (s *Secret) Sign(h http.Header, id string, body []byte) error {
	if s == nil {
		return nil
	}
	now := s.now()
	var all []string
	for _, key := range s.current(now) {
		signature, err := key.Sign(id, now, body)
		if err != nil {
			return err
		}
		all = append(all, signature)
	}
	h.Set(webhooks.HeaderWebhookID, id)
	h.Set(webhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	h.Set(webhooks.HeaderWebhookSignature, strings.Join(all, " "))
	return nil
}

// Check reports why a file that has changed could not be read. The secrets from before go on.
func (s *Secret) Check() error {
	if s == nil {
		return nil
	}
	s.current(s.now())
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fault
}

func (s *Secret) current(now time.Time) []*webhooks.Webhook {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.looked) >= lookEvery {
		s.looked = now
		s.fault = s.read()
	}
	return s.keys
}

// read takes the file's secrets, which are few and short: that costs less than to be sure that they
// have not changed.
func (s *Secret) read() error {
	keys, err := readSecrets(s.path)
	if err != nil {
		return fmt.Errorf("--webhook-secret-file: %w", err)
	}
	s.keys = keys
	return nil
}

func readSecrets(path string) (keys []*webhooks.Webhook, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, mostSecretFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > mostSecretFile {
		return nil, fmt.Errorf("%s is longer than %d bytes", path, mostSecretFile)
	}
	for i, line := range bytes.Split(text, []byte("\n")) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		encoded, ok := bytes.CutPrefix(line, []byte(secretPrefix))
		raw, err := base64.StdEncoding.DecodeString(string(encoded))
		if !ok || err != nil || len(raw) < leastSecret || len(raw) > mostSecret {
			return nil, fmt.Errorf("line %d of %s must be %s and %d to %d bytes in base64", i+1, path, secretPrefix, leastSecret, mostSecret)
		}
		key, err := webhooks.NewWebhookRaw(raw)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	switch {
	case len(keys) == 0:
		return nil, fmt.Errorf("%s has no secret", path)
	case len(keys) > mostSecrets:
		return nil, fmt.Errorf("%s has %d secrets, %d at most", path, len(keys), mostSecrets)
	}
	return keys, nil
}
