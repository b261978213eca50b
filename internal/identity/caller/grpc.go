package caller

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/outbound"
)

// Form is how a question is asked by gRPC. Its messages have the JSON of the question and of the
// answer by HTTP.
type Form struct {
	// Method is the full name, such as /pushmesh.hook.v1.HookService/Connect.
	Method string
	// Request and Response make empty messages.
	Request, Response func() proto.Message
	// JSON is an answer as the backend would give it by HTTP.
	JSON func(proto.Message) ([]byte, error)
}

// Schemes of a backend that is asked by gRPC, in the clear and with TLS.
const (
	plainScheme = "grpc"
	tlsScheme   = "grpcs"
)

// checkGRPC reports whether a URL is of gRPC, and what is wrong with it.
func checkGRPC(raw string) (target string, secure, ours bool, err error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != plainScheme && u.Scheme != tlsScheme {
		return "", false, false, nil // outbound.CheckURL says what is wrong
	}
	_, port, err := net.SplitHostPort(u.Host)
	switch {
	case err != nil || u.Hostname() == "" || port == "":
		err = fmt.Errorf("the URL must be %s://HOST:PORT", u.Scheme)
	case u.User != nil:
		err = errors.New("the URL has a user name or a password: whoever reads the settings would see it")
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		err = fmt.Errorf("the URL must be %s://HOST:PORT, without a path", u.Scheme)
	}
	return u.Host, u.Scheme == tlsScheme, true, err
}

// dialled asks a backend by gRPC.
type dialled struct {
	conn   *grpc.ClientConn
	form   *Form
	secret *outbound.Secret
}

// framing is what an answer in JSON may be longer or shorter than the same in protobuf.
const framing = 4 << 10

func newDialled(cfg *Config, target string, secure bool) (*dialled, error) {
	security := insecure.NewCredentials()
	if secure {
		security = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
	}
	conn, err := grpc.NewClient("passthrough:///"+target, grpc.WithTransportCredentials(security),
		// each address is judged once it is known
		grpc.WithContextDialer(func(ctx context.Context, host string) (net.Conn, error) { return cfg.Guard.Dial(ctx, "tcp", host) }),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithUserAgent("pushmesh"), grpc.WithIdleTimeout(idle),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(cfg.Most+framing)), grpc.WithMaxHeaderListSize(outbound.MostAnswer))
	if err != nil {
		return nil, err
	}
	return &dialled{conn, cfg.Form, cfg.Secret}, nil
}

// ask makes the call; body is the question in JSON.
func (d *dialled) ask(ctx context.Context, id string, body []byte) (code int, header http.Header, data []byte, err error) {
	q, a := d.form.Request(), d.form.Response()
	if err := protojson.Unmarshal(body, q); err != nil {
		return 0, nil, nil, err
	}
	header = http.Header{}
	if err := d.secret.Sign(header, id, []byte(d.form.Method)); err != nil {
		return 0, nil, nil, err
	}
	pairs := []string{"x-request-id", id}
	for name := range header {
		pairs = append(pairs, name, header.Get(name))
	}
	err = d.conn.Invoke(metadata.AppendToOutgoingContext(ctx, pairs...), d.form.Method, q, a)
	if err == nil {
		data, err = d.form.JSON(a)
		return http.StatusOK, http.Header{}, data, err
	}
	says := status.Convert(err)
	header = http.Header{}
	switch says.Code() {
	case codes.Unauthenticated, codes.PermissionDenied:
		data, err = json.Marshal(map[string]string{"reason": says.Message()})
		return http.StatusForbidden, header, data, err
	case codes.Unavailable, codes.ResourceExhausted:
		for _, detail := range says.Details() {
			if info, ok := detail.(*errdetails.RetryInfo); ok && info.GetRetryDelay().AsDuration() > 0 {
				// to the second, as by HTTP, and no sooner
				after := (info.GetRetryDelay().AsDuration() + time.Second - 1) / time.Second
				header.Set("Retry-After", strconv.FormatInt(int64(after), 10))
				return http.StatusServiceUnavailable, header, nil, nil
			}
		}
	}
	switch says.Code() {
	case codes.Unknown, codes.Internal, codes.DataLoss, codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return 0, nil, nil, err
	}
	return 0, nil, nil, &answeredError{err}
}

// answeredError is of a backend that works: what it was asked may well be why it is an error.
type answeredError struct{ error }

func (e *answeredError) Unwrap() error { return e.error }
