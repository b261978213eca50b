package doctor

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// checkReach looks at both addresses of every node, and at who is not heard any more.
func checkReach(r *Report, all []*seen) {
	for _, o := range all {
		n, what, addr := o.node, "gRPC", o.node.GetGrpcAddress()
		if n.GetTier() == pushmeshv1.Tier_TIER_EDGE {
			what, addr = "a subscriber's handshake", n.GetSubscriberAddress()
		}
		var found, advice string
		switch {
		case n.GetProblem() != "" && n.GetHttpAddress() == "":
			found, advice = n.GetProblem(), "a router's --computes names it and it does not answer: start it, or take it out"
		case o.http != nil && o.direct != nil:
			found = "neither HTTP nor " + what + " is answered: " + plain(o.http)
			if direct := plain(o.direct); direct != plain(o.http) {
				found += "; " + direct
			}
			advice = atFault(o.direct, addr)
		case o.http != nil:
			found = "HTTP: " + plain(o.http)
			advice = "health and metrics are served on --http; is " + orUnknown(n.GetHttpAddress()) + " reachable from here, and is that how the node is reached? A node that listens everywhere says its host name"
		case aboutToken(o.direct):
			found = what + " is refused: " + plain(o.direct)
			advice = "the edge lets in who has a good token: give one by --token-file (pushmesh auth explain says what is wrong with a token)"
		case wantsCertificate(o):
			found = what + " is refused: it takes connections with TLS alone"
			advice = "show it an operator's certificate: pushmesh ca issue --tier operator makes one, which --mesh-cert, --mesh-key and --mesh-ca give to doctor"
		case o.direct != nil:
			found = what + " is not answered: " + plain(o.direct)
			advice = "is " + orUnknown(addr) + " reachable from here? Routers and stores say --advertise; look for a firewall, and in the node's log for refusals"
		case n.GetProblem() != "":
			found, advice = "it answers here", "it or the router that names it is cut off from NATS: see \"ready\", and compare the servers in --nats of both"
		default:
			r.ok("reach", o.name(), "HTTP and %s answered, in %s", what, o.took.Round(10*time.Microsecond))
			continue
		}
		if n.GetProblem() != "" && found != n.GetProblem() {
			found = n.GetProblem() + " by the router; " + found
			advice += ". It is listed for five minutes, in case it was replaced for good"
		}
		r.add(Fail, "reach", o.name(), found, advice)
	}
}

// wantsCertificate reports whether a node refused a connection because it was plain text.
func wantsCertificate(o *seen) bool {
	tier := o.node.GetTier()
	return o.direct != nil && (tier == pushmeshv1.Tier_TIER_STORE || tier == pushmeshv1.Tier_TIER_COMPUTE) && strings.Contains(o.direct.Error(), "GoAwayFrame")
}

// atFault says what to do about an address where nobody answers.
func atFault(err error, addr string) string {
	switch addr = orUnknown(addr); {
	case refused(err):
		return "nothing listens at " + addr + ": the process has ended (the end of its log says why; start it), or is reached elsewhere (--advertise, --listen)"
	case hangs(err):
		return "the process at " + addr + " hangs (frozen, swapping, its machine gone), or a firewall drops what is sent there"
	}
	return "is " + addr + " right and reachable from here? Routers and stores say --advertise"
}

func orUnknown(addr string) string {
	if addr == "" {
		return "its address (it says none: is the program older?)"
	}
	return addr
}

func refused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || strings.Contains(err.Error(), "connection refused")
}

func hangs(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded || errors.As(err, &timeout) && timeout.Timeout()
}

// plain is an error without what says on which ways it came.
func plain(err error) string {
	var asked *url.Error
	if errors.As(err, &asked) {
		err = asked.Err
	}
	if hangs(err) {
		return "no answer in time"
	}
	s, ok := status.FromError(err)
	if !ok {
		return err.Error()
	}
	text := s.Message()
	if _, inner, found := strings.Cut(text, "Error while dialing: "); found {
		return strings.TrimSuffix(inner, "\"")
	}
	return strings.ToUpper(s.Code().String()) + ": " + text
}
