package prepare

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/pushmesh/pushmesh/internal/outbound"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// web asks by HTTP.
type web struct {
	client *http.Client
	secret *outbound.Secret
	close  func()
}

func newWeb(g *outbound.Guard, s *outbound.Secret, idle time.Duration) *web {
	client, end := g.Client(idle)
	return &web{client: client, secret: s, close: end}
}

func (w *web) ask(ctx context.Context, raw string, what *pushmeshv1.PrepareRequest) wirev1.Code {
	if _, err := outbound.CheckURL(raw); err != nil {
		return wirev1.Code_CODE_INVALID_ARGUMENT
	}
	body, err := protojson.Marshal(what)
	if err != nil {
		return wirev1.Code_CODE_INTERNAL
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, raw, bytes.NewReader(body))
	if err != nil {
		return wirev1.Code_CODE_INVALID_ARGUMENT
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "pushmesh")
	if err := w.secret.Sign(req.Header, callID(what), body); err != nil {
		return wirev1.Code_CODE_INTERNAL
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return wirev1.Code_CODE_UNAVAILABLE
	}
	defer func() { _ = resp.Body.Close() }()
	// What the answer says beside its status is of no interest, but the connection can be used
	// again once it was read.
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, outbound.MostAnswer))
	if resp.StatusCode/100 != 2 {
		return wirev1.Code_CODE_FORBIDDEN
	}
	return wirev1.Code_CODE_OK
}

// callID is the same for a call that is repeated, so that a receiver may tell.
func callID(what *pushmeshv1.PrepareRequest) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %d", what.GetResource(), what.GetOwner(), what.GetToken()))
	return "prepare_" + hex.EncodeToString(sum[:16])
}
