package python

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/testca"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/link"
)

// number is that of an environment variable, or another one where it is not set.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text, ok := os.LookupEnv(name)
	if !ok {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q, it must be a number above 0", name, text)
	}
	return n
}

// A subscriber whose connections are cut has every message once, in order. PUSHMESH_PYTHON_MESSAGES
// of them come through PUSHMESH_PYTHON_CUTS.
func TestNothingIsMissingAndNothingDouble(t *testing.T) {
	ca, err := testca.New()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key, err := ca.Write(dir, "edge", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	trusted := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(trusted, ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	m := harness.Start(t, harness.Options{TLSCert: cert, TLSKey: key})
	batches := number(t, "PUSHMESH_PYTHON_CUTS", 20)
	batch := max(number(t, "PUSHMESH_PYTHON_MESSAGES", 10_000)/batches, 1)
	for _, how := range [][]string{{"tcp"}, {"tls", trusted}, {"websocket"}} {
		t.Run(how[0], func(t *testing.T) {
			l := link.New(t, m.EdgeAddr(), nil)
			topic := "room/python/" + how[0]
			args := append([]string{l.Addr(), topic, fmt.Sprint(batches * batch), fmt.Sprint(batch)}, how...)
			began := time.Now()
			p := python(t, "receive.py", args...)
			p.saysAll("joined")
			for n := range batches {
				m.PublishBatch(t, topic, batch)
				l.Set("", link.Fault{Cut: true})
				l.Set("", link.Fault{})
				p.saysAll(fmt.Sprint("had ", (n+1)*batch))
			}
			if got := p.says(); !strings.HasPrefix(got, "wrong [] connects ") || strings.HasSuffix(got, " connects 1") {
				t.Fatal(got)
			} else {
				t.Logf("%d messages through %d cuts in %v: %s", batches*batch, batches, time.Since(began).Round(time.Second/10), got)
			}
			p.ends()
		})
	}
}
