package prepare

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// mostAnswer bytes of an answer's headers, and of its body, are read; a connection with more to
// come is closed.
const mostAnswer = 64 << 10

// web asks by HTTP.
type web struct {
	client    *http.Client
	transport *http.Transport
}

func newWeb(idle time.Duration) *web {
	t := &http.Transport{
		ForceAttemptHTTP2: true, DisableCompression: true, MaxIdleConns: 256, MaxIdleConnsPerHost: 64, IdleConnTimeout: idle,
		MaxResponseHeaderBytes: mostAnswer,
	}
	return &web{transport: t, client: &http.Client{
		Transport: t,
		// A redirect is no answer: the call would go where the policy doesn't say.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (w *web) ask(ctx context.Context, url string, what *pushmeshv1.PrepareRequest) wirev1.Code {
	body, err := protojson.Marshal(what)
	if err != nil {
		return wirev1.Code_CODE_INTERNAL
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return wirev1.Code_CODE_INVALID_ARGUMENT
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "pushmesh")
	resp, err := w.client.Do(req)
	if err != nil {
		return wirev1.Code_CODE_UNAVAILABLE
	}
	defer func() { _ = resp.Body.Close() }()
	// What the answer says beside its status is of no interest, but the connection can be used
	// again once it was read.
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, mostAnswer))
	if resp.StatusCode/100 != 2 {
		return wirev1.Code_CODE_FORBIDDEN
	}
	return wirev1.Code_CODE_OK
}

func (w *web) close() { w.transport.CloseIdleConnections() }
