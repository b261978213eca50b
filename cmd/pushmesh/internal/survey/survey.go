// Package survey looks at a whole mesh from outside: any router says which nodes there are, and
// each node is asked over HTTP.
package survey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/dialfault"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const (
	// askTimeout is Survey.Timeout where it is not said.
	askTimeout = 2 * time.Second
	// atATime is how many nodes are asked together.
	atATime = 64
	// mostText bounds what is read of one answer.
	mostText = 16 << 20
)

// Survey asks a mesh. It owns a connection to each router that it was told of.
type Survey struct {
	// Timeout bounds one question; 0: 2 s. It is set before the first.
	Timeout time.Duration

	addrs []string
	conns []*grpc.ClientConn
	http  *http.Client
}

// New makes a survey that begins with any of some routers, which the options reach.
func New(routers []string, options ...grpc.DialOption) (*Survey, error) {
	s := &Survey{http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute}}}
	for _, addr := range routers {
		conn, err := grpc.NewClient(addr, options...)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("router %s: %w", addr, err), s.Close())
		}
		s.addrs, s.conns = append(s.addrs, addr), append(s.conns, conn)
	}
	return s, nil
}

// Close ends its connections.
func (s *Survey) Close() error {
	s.http.CloseIdleConnections()
	var errs []error
	for _, c := range s.conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// Nodes is what the first router that answers knows of the mesh.
func (s *Survey) Nodes(ctx context.Context) (*pushmeshv1.MeshServiceNodesResponse, error) {
	var errs []error
	for i, conn := range s.conns {
		resp, err := s.nodes(ctx, conn)
		if err == nil {
			localise(resp.GetNodes(), s.addrs[i])
			return resp, nil
		}
		errs = append(errs, fmt.Errorf("router %s: %w", s.addrs[i], err))
	}
	return nil, errors.Join(errs...)
}

func (s *Survey) nodes(ctx context.Context, conn *grpc.ClientConn) (*pushmeshv1.MeshServiceNodesResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(s.Timeout, askTimeout))
	defer cancel()
	answer, err := pushmeshv1.NewMeshServiceClient(conn).Nodes(ctx, &pushmeshv1.MeshServiceNodesRequest{})
	return answer, Plain(conn.Target(), err)
}

// Plain says of a connection to addr that can't be made what it is, without gRPC's words. Another
// error is returned as it is.
func Plain(addr string, err error) error {
	s, ok := status.FromError(err)
	if !ok || s.Code() != codes.Unavailable {
		return err
	}
	sentence, wrongPort := dialfault.Explain(addr, s.Message())
	switch {
	case wrongPort:
		return code.New(wirev1.Code_CODE_UNSUPPORTED, sentence)
	case sentence != s.Message():
		return code.New(wirev1.Code_CODE_UNAVAILABLE, sentence)
	}
	return err
}

// localise gives addresses without a host the one at which the router answered.
func localise(all []*pushmeshv1.Node, router string) {
	here, _, err := net.SplitHostPort(router)
	if err != nil {
		return
	}
	for _, n := range all {
		for _, addr := range []*string{&n.GrpcAddress, &n.SubscriberAddress, &n.HttpAddress} {
			if host, port, err := net.SplitHostPort(*addr); err == nil && (host == "" || net.ParseIP(host).IsUnspecified()) {
				*addr = net.JoinHostPort(here, port)
			}
		}
	}
}

// Get asks a node over HTTP. Any status is an answer.
func (s *Survey) Get(ctx context.Context, addr, path string) (status int, body []byte, err error) {
	if addr == "" {
		return 0, nil, errors.New("its HTTP address is not known")
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(s.Timeout, askTimeout))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(resp.Body, mostText))
	return resp.StatusCode, body, err
}

// Each calls f for every node, some at a time, and waits.
func Each(all []*pushmeshv1.Node, f func(i int, n *pushmeshv1.Node)) {
	turns := make(chan struct{}, atATime)
	var wg sync.WaitGroup
	for i, n := range all {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			f(i, n)
		})
	}
	wg.Wait()
}
