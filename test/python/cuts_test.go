package python

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/testca"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/link"
)

// A subscriber whose connections are cut has every message once, in order.
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
	const batches, batch = 20, 500
	for _, how := range [][]string{{"tcp"}, {"tls", trusted}, {"websocket"}} {
		t.Run(how[0], func(t *testing.T) {
			l := link.New(t, m.EdgeAddr(), nil)
			topic := "room/python/" + how[0]
			args := append([]string{l.Addr(), topic, fmt.Sprint(batches * batch)}, how...)
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
			}
			p.ends()
		})
	}
}
