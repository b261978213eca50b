package gate

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/pushmesh/pushmesh/internal/identity/backends"
	"github.com/pushmesh/pushmesh/internal/topic"
	pb "github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// need is what a caller of an RPC needs. An operator may call all.
type need struct {
	// any: whoever has one of these roles may call it, whatever it is about.
	any backends.Kind
	// part: or a role of this kind, whose filters must contain all that of says. Without of the
	// role is enough here, and what is asked for is checked where it is known one by one.
	part backends.Kind
	of   func(m any) []string
	// acts: where it is true the call changes something, and a role of any is not enough. nil: it
	// never is.
	acts func(m any) bool
	// about is what the log says of a change; nil: it changes nothing that an operator would ask
	// for.
	about func(m any) string
	// waits: a call that is not a stream, and may last.
	waits bool
}

// check refuses a request.
func (n *need) check(who *backends.Identity, m any) error {
	enough := n.any
	if n.acts != nil && n.acts(m) {
		enough = 0 // an operator's alone
	}
	if who.Has(enough) || n.of == nil {
		return nil
	}
	for _, filter := range n.of(m) {
		if topic.CheckFilter(filter) != nil || !who.May(n.part, filter) {
			return who.Refuse(n.part, filter)
		}
	}
	return nil
}

// rule is the role that lets a request in: it must have been checked.
func (n *need) rule(who *backends.Identity, m any) string {
	enough := n.any
	if n.acts != nil && n.acts(m) {
		enough = 0
	}
	var filters []string
	if n.of != nil {
		filters = n.of(m)
	}
	return who.By(enough, n.part, filters)
}

// get makes a function of a message of one type; of another it panics, which a test would find.
func get[M any, R any](f func(M) R) func(any) R { return func(m any) R { return f(m.(M)) } }

func one[M any](f func(M) string) func(any) []string {
	return func(m any) []string { return []string{f(m.(M))} }
}

// owned reports whether a request is for an owner, whose place in the line it then keeps.
func owned[M any](owner func(M) string) func(any) bool {
	return func(m any) bool { return owner(m.(M)) != "" }
}

// begins is a filter for all resources whose names begin with a text.
func begins(text string) string {
	level := strings.LastIndexByte(text, '/')
	if level < 0 {
		return "#"
	}
	return text[:level] + "/#"
}

// letters names dead letters, for the log.
func letters(ids []uint64, filter string) string {
	return fmt.Sprintf("%d ids, filter %q", len(ids), filter)
}

// user names a client or a user, for the log.
func user(client, user string) string { return fmt.Sprintf("client %q, user %q", client, user) }

// revoked names a user or a token, for the log.
func revoked(user, issuer, id string) string {
	return fmt.Sprintf("user %q, issuer %q, token id %q", user, issuer, id)
}

// namedUsers is how many users of a change the log names.
const namedUsers = 10

// users names those whose membership changes, for the log.
func users(team string, all []string) string {
	return fmt.Sprintf("team %q, %d users: %q", team, len(all), all[:min(len(all), namedUsers)])
}

// needs has every RPC of the public API.
var needs = map[string]need{
	// topics in publish.Publisher
	"pushmesh.v1.PublishService/Publish":       {part: backends.Publisher},
	"pushmesh.v1.PublishService/PublishStream": {part: backends.Publisher}, // the same
	// topics in the store, which knows them by the message's id
	"pushmesh.v1.PublishService/CancelScheduled": {part: backends.Publisher},

	"pushmesh.v1.SubscribeService/Subscribe": {part: backends.Consumer}, // filters in subscribe

	"pushmesh.v1.HistoryService/Read":       {any: backends.Auditor, part: backends.Consumer, of: one((*pb.ReadRequest).GetTopic)},
	"pushmesh.v1.HistoryService/Head":       {any: backends.Auditor, part: backends.Consumer, of: get((*pb.HeadRequest).GetTopics)},
	"pushmesh.v1.PresenceService/Count":     {any: backends.Auditor, part: backends.Consumer, of: get((*pb.CountRequest).GetTopics)},
	"pushmesh.v1.PresenceService/List":      {any: backends.Auditor, part: backends.Consumer, of: one((*pb.PresenceServiceListRequest).GetTopic)},
	"pushmesh.v1.PresenceService/Watch":     {any: backends.Auditor, part: backends.Consumer, of: one((*pb.PresenceServiceWatchRequest).GetFilter)},
	"pushmesh.v1.ClaimService/Acquire":      {part: backends.Claimant, of: one((*pb.AcquireRequest).GetResource), waits: true},
	"pushmesh.v1.ClaimService/Renew":        {part: backends.Claimant, of: one((*pb.RenewRequest).GetResource)},
	"pushmesh.v1.ClaimService/Release":      {part: backends.Claimant, of: one((*pb.ReleaseRequest).GetResource)},
	"pushmesh.v1.ClaimService/Leave":        {part: backends.Claimant, of: one((*pb.LeaveRequest).GetResource)},
	"pushmesh.v1.ClaimService/Check":        {any: backends.Auditor, part: backends.Claimant, of: one((*pb.CheckRequest).GetResource), acts: owned((*pb.CheckRequest).GetOwner)},
	"pushmesh.v1.ClaimService/Watch":        {any: backends.Auditor, part: backends.Claimant, of: one((*pb.WatchRequest).GetResource), acts: owned((*pb.WatchRequest).GetOwner)},
	"pushmesh.v1.ClaimService/List":         {any: backends.Auditor, part: backends.Claimant, of: one(listed)},
	"pushmesh.v1.KeptService/List":          {any: backends.Auditor, part: backends.Consumer, of: one(keptFilter)},
	"pushmesh.v1.KeptService/Delete":        {about: get((*pb.KeptServiceDeleteRequest).GetTopic)},
	"pushmesh.v1.DeadLetterService/List":    {any: backends.Auditor},
	"pushmesh.v1.DeadLetterService/Replay":  {about: get(func(m *pb.DeadLetterServiceReplayRequest) string { return letters(m.GetIds(), m.GetFilter()) })},
	"pushmesh.v1.DeadLetterService/Discard": {about: get(func(m *pb.DeadLetterServiceDiscardRequest) string { return letters(m.GetIds(), m.GetFilter()) })},

	"pushmesh.v1.SessionService/List": {any: backends.Auditor},
	"pushmesh.v1.SessionService/Get":  {any: backends.Auditor},
	"pushmesh.v1.SessionService/Delete": {about: get(func(m *pb.SessionServiceDeleteRequest) string {
		return fmt.Sprintf("user %q, session %q", m.GetUser(), m.GetName())
	})},
	"pushmesh.v1.SessionService/Adopt": {about: get(func(m *pb.AdoptRequest) string {
		return fmt.Sprintf("user %q, session %q, to user %q, session %q, dry run %t", m.GetUser(), m.GetName(), m.GetToUser(), m.GetToName(), m.GetDryRun())
	})},
	"pushmesh.v1.SessionService/Disconnect": {about: get(func(m *pb.DisconnectRequest) string { return user(m.GetClientId(), m.GetUser()) })},
	"pushmesh.v1.SessionService/SetProfile": {about: get(func(m *pb.SetProfileRequest) string { return user(m.GetClientId(), m.GetUser()) })},

	"pushmesh.v1.AccessService/List": {any: backends.Auditor},
	"pushmesh.v1.AccessService/Revoke": {about: get(func(m *pb.AccessServiceRevokeRequest) string {
		return revoked(m.GetUser(), m.GetIssuer(), m.GetTokenId())
	})},
	"pushmesh.v1.AccessService/Restore": {about: get(func(m *pb.AccessServiceRestoreRequest) string {
		return revoked(m.GetUser(), m.GetIssuer(), m.GetTokenId())
	})},

	"pushmesh.v1.MembershipService/ListTeams":  {any: backends.Auditor},
	"pushmesh.v1.MembershipService/List":       {any: backends.Auditor},
	"pushmesh.v1.MembershipService/PutTeam":    {about: get(func(m *pb.PutTeamRequest) string { return fmt.Sprintf("team %q", m.GetTeam().GetName()) })},
	"pushmesh.v1.MembershipService/DeleteTeam": {about: get(func(m *pb.DeleteTeamRequest) string { return fmt.Sprintf("team %q", m.GetName()) })},
	"pushmesh.v1.MembershipService/Add": {about: get(func(m *pb.MembershipServiceAddRequest) string {
		return users(m.GetTeam(), m.GetUsers())
	})},
	"pushmesh.v1.MembershipService/Remove": {about: get(func(m *pb.MembershipServiceRemoveRequest) string {
		return users(m.GetTeam(), m.GetUsers())
	})},

	"pushmesh.v1.NamespaceService/Put":    {about: get(func(m *pb.NamespaceServicePutRequest) string { return m.GetNamespace().GetPrefix() })},
	"pushmesh.v1.NamespaceService/Get":    {any: backends.Auditor},
	"pushmesh.v1.NamespaceService/List":   {any: backends.Auditor},
	"pushmesh.v1.NamespaceService/Delete": {about: get((*pb.NamespaceServiceDeleteRequest).GetPrefix)},

	// it computes with what is in the request
	"pushmesh.v1.RankService/Rank":       {any: backends.Publisher | backends.Consumer | backends.Auditor},
	"pushmesh.v1.RankService/PutModel":   {about: get((*pb.PutModelRequest).GetName)},
	"pushmesh.v1.RankService/ListModels": {any: backends.Auditor},
	"pushmesh.v1.RankService/DeleteModel": {about: get(func(m *pb.DeleteModelRequest) string {
		return fmt.Sprintf("%s, version %d", m.GetName(), m.GetVersion())
	})},
	"pushmesh.v1.RankService/RollBack": {about: get((*pb.RollBackRequest).GetName)},

	"pushmesh.v1.MeshService/Nodes":     {any: backends.Auditor},
	"pushmesh.v1.MeshService/Rebalance": {about: get((*pb.RebalanceRequest).GetEdge)},
	"pushmesh.v1.MeshService/AcceptServer": {about: get(func(m *pb.AcceptServerRequest) string {
		return fmt.Sprintf("database %q, %s", m.GetDatabase(), m.GetEpoch())
	})},
}

// keptFilter is a filter for the topics that a list of what is kept is about.
func keptFilter(m *pb.KeptServiceListRequest) string { return cmp.Or(m.GetFilter(), "#") }

// listed is a filter for the resources that a list of claims is about.
func listed(m *pb.ClaimServiceListRequest) string {
	if m.GetResource() != "" {
		return m.GetResource()
	}
	return begins(m.GetPrefix())
}
