package auth

import (
	"context"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/internal/revocation"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// whose are the tokens that a command is about.
type whose struct {
	User   string `placeholder:"NAME" help:"All tokens of this user, by the name that the mesh knows it by (with the issuer's prefix)."`
	Issuer string `placeholder:"NAME" help:"With --jti: a single token of the issuer that has this name in the issuers file."`
	JTI    string `name:"jti" placeholder:"ID" help:"With --issuer: the token's jti."`
}

// check finds flags that do not go together.
func (w *whose) check() error {
	if err := revocation.CheckNames(&pushmeshv1.Revocation{User: w.User, Issuer: w.Issuer, TokenId: w.JTI}); err != nil {
		return cmdline.Usage("it needs either --user, or --issuer and --jti: %w", err)
	}
	return nil
}

type revoke struct {
	whose
	Reason string        `placeholder:"TEXT" help:"What the clients are told."`
	For    time.Duration `default:"24h" placeholder:"DURATION" help:"How long it lasts, 400d at most: as long as the tokens may, at least."`
	cmdline.RouterFlag
}

// Help of the command.
func (revoke) Help() string {
	return `Every edge closes the connections that came in with such a token within a second, and lets none in. A user's tokens are those that were issued until now,
by their iat (in whole seconds; a token without iat is one of them): the user comes in again with a new one. The user's durable sessions stay.

  pushmesh auth revoke --user ann --reason "the phone was stolen" --for 7d
  pushmesh auth revoke --issuer backend --jti 0b1946ac`
}

// Run revokes.
func (c *revoke) Run(ctx context.Context, stdio cmdline.IO) error {
	if err := c.check(); err != nil {
		return err
	}
	if c.For <= 0 || c.For > revocation.MaxTime {
		return cmdline.Usage("--for %v must be above 0, and %d days at most", c.For, int(revocation.MaxTime.Hours()/24))
	}
	return withAccess(ctx, c.RouterFlag, cmdline.CallTimeout, func(ctx context.Context, api pushmeshv1.AccessServiceClient) error {
		resp, err := api.Revoke(ctx, &pushmeshv1.AccessServiceRevokeRequest{
			User: c.User, Issuer: c.Issuer, TokenId: c.JTI, Reason: c.Reason, Until: uint64(time.Now().Add(c.For).UnixMicro()),
		})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(stdio.Out, "revoked until %s\n", cmdline.ShowTime(resp.GetRevocation().GetUntil()))
		return err
	})
}

type restore struct {
	whose
	cmdline.RouterFlag
}

// Help of the command.
func (restore) Help() string {
	return `Tokens that the revocation made void are good again, until they end.

  pushmesh auth restore --user ann
  pushmesh auth restore --issuer backend --jti 0b1946ac`
}

// Run restores.
func (c *restore) Run(ctx context.Context, stdio cmdline.IO) error {
	if err := c.check(); err != nil {
		return err
	}
	return withAccess(ctx, c.RouterFlag, cmdline.CallTimeout, func(ctx context.Context, api pushmeshv1.AccessServiceClient) error {
		if _, err := api.Restore(ctx, &pushmeshv1.AccessServiceRestoreRequest{User: c.User, Issuer: c.Issuer, TokenId: c.JTI}); err != nil {
			return err
		}
		_, err := fmt.Fprintln(stdio.Out, "restored")
		return err
	})
}

type revocations struct {
	Limit int `placeholder:"N" help:"Show at most N; all by default."`
	cmdline.RouterFlag
	cmdline.FormatFlag
}

// Help of the command.
func (revocations) Help() string {
	return `AT is when it was made: a user's tokens that were issued until then are void. UNTIL is when it ends by itself.

  pushmesh auth revocations --format json`
}

// listed is a revocation as it is printed.
type listed struct {
	User    string `json:"user,omitempty"`
	Issuer  string `json:"issuer,omitempty"`
	TokenID string `json:"jti,omitempty"`
	Reason  string `json:"reason,omitempty"`
	At      string `json:"at"`
	Until   string `json:"until"`
}

// pageOfRevocations is how many are asked for at a time.
const pageOfRevocations = 500

// Run prints them.
func (c *revocations) Run(ctx context.Context, stdio cmdline.IO) error {
	if c.Limit < 0 {
		return cmdline.Usage("--limit is below 0")
	}
	return withAccess(ctx, c.RouterFlag, 0, func(ctx context.Context, api pushmeshv1.AccessServiceClient) error {
		t := c.Table(stdio.Out, "USER", "ISSUER", "JTI", "AT", "UNTIL", "REASON")
		err := cmdline.Pages(c.Limit, pageOfRevocations, func(n uint32, token string) (int, string, error) {
			page, err := api.List(ctx, &pushmeshv1.AccessServiceListRequest{Limit: n, PageToken: token})
			if err != nil {
				return 0, "", err
			}
			for _, r := range page.GetRevocations() {
				one := listed{
					User: r.GetUser(), Issuer: r.GetIssuer(), TokenID: r.GetTokenId(), Reason: r.GetReason(),
					At: cmdline.ShowTime(r.GetAt()), Until: cmdline.ShowTime(r.GetUntil()),
				}
				if err := t.Row(one, cmdline.OrDash(one.User), cmdline.OrDash(one.Issuer), cmdline.OrDash(one.TokenID), one.At, one.Until, one.Reason); err != nil {
					return 0, "", err
				}
			}
			return len(page.GetRevocations()), page.GetNextPageToken(), nil
		})
		if err != nil {
			return err
		}
		return t.Flush()
	})
}

func withAccess(ctx context.Context, f cmdline.RouterFlag, within time.Duration, call func(context.Context, pushmeshv1.AccessServiceClient) error) error {
	return cmdline.Call(ctx, f, within, pushmeshv1.NewAccessServiceClient, call)
}
