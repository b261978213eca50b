package tierauth

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

var (
	everybody = []Tier{Store, Compute, Router, Edge, Operator}
	both      = []Tier{Router, Edge}
	routers   = []Tier{Router}
	edges     = []Tier{Edge}
)

// callers is which tiers may call a method: those that do in the code, and no others.
var callers = map[string][]Tier{
	meshv1.StoreService_Owners_FullMethodName:             everybody,
	meshv1.StoreService_Inspect_FullMethodName:            everybody,
	meshv1.StoreService_Append_FullMethodName:             routers,
	meshv1.StoreService_ReadLog_FullMethodName:            both,
	meshv1.StoreService_Heads_FullMethodName:              both,
	meshv1.StoreService_ListKept_FullMethodName:           routers,
	meshv1.StoreService_AttachSession_FullMethodName:      both,
	meshv1.StoreService_RenewLeases_FullMethodName:        edges,
	meshv1.StoreService_WriteCursors_FullMethodName:       edges,
	meshv1.StoreService_ListSessions_FullMethodName:       routers,
	meshv1.StoreService_GetSession_FullMethodName:         routers,
	meshv1.StoreService_DeleteSession_FullMethodName:      routers,
	meshv1.StoreService_AdoptSession_FullMethodName:       routers,
	meshv1.StoreService_PutNamespace_FullMethodName:       routers,
	meshv1.StoreService_ListNamespaces_FullMethodName:     both,
	meshv1.StoreService_DeleteNamespace_FullMethodName:    routers,
	meshv1.StoreService_ListDeadLetters_FullMethodName:    routers,
	meshv1.StoreService_DiscardDeadLetters_FullMethodName: routers,
	meshv1.StoreService_CancelScheduled_FullMethodName:    routers,
	meshv1.StoreService_PutModel_FullMethodName:           routers,
	meshv1.StoreService_ListModels_FullMethodName:         {Router, Compute},
	meshv1.StoreService_ReadModel_FullMethodName:          {Compute},
	meshv1.StoreService_DeleteModel_FullMethodName:        routers,
	meshv1.StoreService_Revoke_FullMethodName:             routers,
	meshv1.StoreService_Restore_FullMethodName:            routers,
	meshv1.StoreService_ListRevocations_FullMethodName:    both,
	meshv1.StoreService_PutTeam_FullMethodName:            routers,
	meshv1.StoreService_DeleteTeam_FullMethodName:         routers,
	meshv1.StoreService_ChangeMembers_FullMethodName:      routers,
	meshv1.StoreService_FindTeams_FullMethodName:          routers,
	meshv1.StoreService_FollowTeams_FullMethodName:        edges,
	meshv1.StoreService_Claims_FullMethodName:             both,
	meshv1.StoreService_ListClaims_FullMethodName:         both,
	meshv1.StoreService_AcceptServer_FullMethodName:       routers,

	meshv1.ComputeService_RankJob_FullMethodName:  both,
	meshv1.ComputeService_RankJobs_FullMethodName: both,
	meshv1.ComputeService_Describe_FullMethodName: {Router, Edge, Operator},
}

// common are services that every server has, for everybody with a certificate of the mesh.
var common = []string{"/grpc.health.v1.Health/", "/grpc.reflection.v1.ServerReflection/", "/grpc.reflection.v1alpha.ServerReflection/"}

// may reports whether a tier may call a method.
func may(t Tier, method string) bool {
	if slices.Contains(callers[method], t) {
		return true
	}
	return t != "" && slices.ContainsFunc(common, func(service string) bool { return strings.HasPrefix(method, service) })
}

// ServerOptions refuse calls to whoever may not make them, FORBIDDEN.
func (i *Identity) ServerOptions() []grpc.ServerOption {
	if i == nil {
		return nil
	}
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if err := i.allow(ctx, info.FullMethod); err != nil {
				return nil, err
			}
			return handle(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			if err := i.allow(stream.Context(), info.FullMethod); err != nil {
				return err
			}
			return handle(srv, stream)
		}),
	}
}

func (i *Identity) allow(ctx context.Context, method string) error {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return code.New(wirev1.Code_CODE_INTERNAL, "nobody is known to have called")
	}
	info, ok := from.AuthInfo.(credentials.TLSInfo)
	if !ok && i.plain {
		return nil // the door takes such connections only then
	}
	var t Tier
	if len(info.State.VerifiedChains) > 0 {
		t = Of(info.State.PeerCertificates[0])
	}
	if may(t, method) {
		return nil
	}
	who := string(t)
	if who == "" {
		who = "none"
	}
	if i.forbidden != nil {
		i.forbidden.WithLabelValues(who).Inc()
	}
	i.loud.tell(i.log, "forbidden "+who, "a call was refused: the caller's certificate is of no tier that may make it", "tier", who, "method", method, "from", from.Addr)
	return code.New(wirev1.Code_CODE_FORBIDDEN, "certificates of the tier "+who+" may not call "+method)
}
