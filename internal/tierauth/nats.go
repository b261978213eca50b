package tierauth

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
)

// NATSFlags are how a tier proves to NATS who it is, where that is not its certificate.
type NATSFlags struct {
	NATSCreds        string `name:"nats-creds" help:"File of credentials (JWT and seed) for NATS." see:"nats-with-tls"`
	NATSUser         string `name:"nats-user" help:"User of NATS; needs --nats-password-file." see:"nats-with-tls"`
	NATSPasswordFile string `name:"nats-password-file" help:"File with the password of --nats-user, read for each connection." see:"nats-with-tls"`
}

// CheckNATS finds what does not go together.
func (f *NATSFlags) CheckNATS() error {
	switch {
	case (f.NATSUser == "") != (f.NATSPasswordFile == ""):
		return errors.New("--nats-user and --nats-password-file must be given together")
	case f.NATSUser != "" && f.NATSCreds != "":
		return errors.New("--nats-creds and --nats-user exclude each other")
	}
	return nil
}

// inboxes is what all subjects of answers begin with.
const inboxes = "_INBOX."

// NATS is how servers at url are connected to: with the process's certificate wherever there is
// one, unless --plain-tiers stands beside it and url does not begin with tls://.
func (i *Identity) NATS(url string, f NATSFlags) (options []nats.Option) {
	if i != nil && (!i.plain || strings.HasPrefix(url, "tls://")) {
		options = append(options,
			// so that no tier hears what others are answered
			nats.CustomInboxPrefix(inboxes+string(i.tier)),
			nats.Secure(&tls.Config{ServerName: NATS.Name(), MinVersion: tls.VersionTLS12, VerifyConnection: i.Verify}),
			nats.ClientTLSConfig(
				func() (tls.Certificate, error) { return *i.First(), nil },
				func() (*x509.CertPool, error) { return i.CA(), nil },
			))
	}
	if f.NATSCreds != "" {
		options = append(options, nats.UserCredentials(f.NATSCreds))
	}
	if f.NATSUser != "" {
		options = append(options, nats.UserInfoHandler(func() (user, password string) {
			// a file that can't be read is a password that is refused: the log says so
			b, _ := os.ReadFile(f.NATSPasswordFile)
			return f.NATSUser, strings.TrimSpace(string(b))
		}))
	}
	return options
}
