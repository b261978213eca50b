package outbound

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The example of the Standard Webhooks specification.
const (
	specSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" //nolint:gosec // the specification's
	specID     = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	specTime   = 1614265330
	specBody   = `{"test": 2432232314}`
	specSigned = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

func TestSignaturesAreThoseOfTheSpecification(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	need(t, os.WriteFile(file, []byte(specSecret), 0o600))
	now := time.Unix(specTime, 0)
	s, err := OpenSecret(file, func() time.Time { return now })
	need(t, err)
	sign := func() string {
		h := http.Header{}
		need(t, s.Sign(h, specID, []byte(specBody)))
		if h.Get("Webhook-Id") != specID || len(h.Get("Webhook-Timestamp")) != 10 {
			t.Errorf("%q", h)
		}
		return h.Get("Webhook-Signature")
	}
	if got := sign(); got != specSigned {
		t.Errorf("signed %s", got)
	}
	// A second secret: both sign, until the first is taken away.
	const next = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	need(t, os.WriteFile(file, []byte(next+"\n\n"+specSecret+"\n"), 0o600))
	if got := sign(); got != specSigned {
		t.Errorf("the file is looked at more than once a second: %s", got)
	}
	now = now.Add(lookEvery)
	if got := strings.Fields(sign()); len(got) != 2 {
		t.Errorf("two secrets signed %q", got)
	}
	// A file that is spoilt changes nothing, and is told of.
	need(t, os.WriteFile(file, []byte("whsec_s3cr3t"), 0o600))
	now = now.Add(lookEvery)
	if err := s.Check(); err == nil || strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("a spoilt file: %v", err)
	}
	if got := strings.Fields(sign()); len(got) != 2 {
		t.Errorf("after a spoilt file %q", got)
	}
	need(t, os.WriteFile(file, []byte(specSecret), 0o600))
	now = now.Add(lookEvery)
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

func TestWithoutASecretNothingIsSigned(t *testing.T) {
	s, err := OpenSecret("", time.Now)
	need(t, err)
	h := http.Header{}
	need(t, s.Sign(h, "a", nil))
	if len(h) != 0 || s.Check() != nil {
		t.Errorf("%q", h)
	}
}

func TestFilesThatHaveNoSecret(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"empty": "\n", "prefix": "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "short": "whsec_c2hvcnQ=", "base64": "whsec_!!!!",
		"many": strings.Repeat(specSecret+"\n", mostSecrets+1), "long": strings.Repeat("\n", mostSecretFile+1), "long secret": "whsec_" + strings.Repeat("AAAA", 22),
	} {
		file := filepath.Join(dir, name)
		need(t, os.WriteFile(file, []byte(text), 0o600))
		if _, err := OpenSecret(file, time.Now); err == nil || !strings.Contains(err.Error(), "--webhook-secret-file") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := OpenSecret(filepath.Join(dir, "none"), time.Now); err == nil {
		t.Error("a file that is not there was read")
	}
}
