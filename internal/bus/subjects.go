package bus

import (
	"fmt"
	"regexp"

	"github.com/pushmesh/pushmesh/internal/meshid"
)

// Subjects without an id of a node. All subjects of this package stand behind "pushmesh.", the
// mesh's name, and its id: a Bus puts these in front, so that two meshes on one NATS never hear
// each other.
const (
	// EdgeAnnounce carries meshv1.EdgeAnnounce from an edge to every router.
	EdgeAnnounce = "edge.announce"
	// EdgeDigest carries meshv1.EdgeDigest from an edge to every router.
	EdgeDigest = "edge.digest"
	// EveryEdgeFrames carries meshv1.RouterFrame from a router to every edge.
	EveryEdgeFrames = "edges.frames"
	// StoreBeat carries meshv1.StoreBeat from a store to every tier.
	StoreBeat = "store.beat"
	// RouterBeat carries meshv1.RouterBeat from a router to every router.
	RouterBeat = "router.beat"
	// NamespacesChanged carries nothing: whoever holds policies asks the store again.
	NamespacesChanged = "namespaces.changed"
	// RevocationsChanged carries nothing: whoever goes by revocations asks the store again.
	RevocationsChanged = "revocations.changed"
	// TeamsChanged carries nothing: whoever goes by teams asks the store again.
	TeamsChanged = "teams.changed"
	// Namespaces carries meshv1.ListNamespacesRequest to one process of all that know the
	// namespaces, answered with meshv1.ListNamespacesResponse.
	Namespaces = "namespaces.get"
	// NamespacesKnown is the queue group of Namespaces.
	NamespacesKnown = "namespaces"
	// Stored carries meshv1.Stored from a store to one live router: those that can route share the
	// subscription named Routers.
	Stored = "stored"
	// EventPublish carries meshv1.EventPublish to one router of all, answered with
	// meshv1.ClientPublishReply.
	EventPublish = "router.events"
	// Routers is the queue group of Stored, OutboxPublish and EventPublish.
	Routers = "routers"
	// OutboxPublish carries meshv1.OutboxPublish from a store to one router of all, answered with
	// meshv1.ClientPublishReply.
	OutboxPublish = "router.outbox"
)

// prefix of every subject of a mesh.
func prefix(m meshid.Mesh) string { return "pushmesh." + m.Name + "." + m.ID + "." }

// hello is the one subject that all meshes of a name share. It carries meshv1.MeshHello from every
// store.
func hello(name string) string { return "pushmesh." + name + ".hello" }

// Node names one process of a tier in subjects: "edge", "router" or "store", and its id.
func Node(tier, id string) string { return tier + "." + id }

// NamespacesAt is the subject of meshv1.ListNamespacesRequest for one process (Node), answered with
// nothing once it goes by have_version or a newer one.
func NamespacesAt(node string) string { return "namespaces.at." + node }

// RouterEvents is the subject of meshv1.EventPublish for one router, answered with
// meshv1.ClientPublishReply.
func RouterEvents(router string) string { return "router." + router + ".events" }

// EdgeFrames is the subject of meshv1.RouterFrame for one edge.
func EdgeFrames(edge string) string { return "edge." + edge + ".frames" }

// EdgeRequest is the subject of meshv1.EdgeRequest for one edge, answered with meshv1.EdgeReply.
func EdgeRequest(edge string) string { return "edge." + edge + ".request" }

// EdgeGroups is the subject of meshv1.GroupFrame for one edge, answered with
// meshv1.GroupFrameReply.
func EdgeGroups(edge string) string { return "edge." + edge + ".groups" }

// RouterSnapshot is the subject of meshv1.EdgeSnapshot for one router.
func RouterSnapshot(router string) string { return "router." + router + ".snapshot" }

// RouterPublish is the subject of meshv1.ClientPublish for one router, answered with
// meshv1.ClientPublishReply.
func RouterPublish(router string) string { return "router." + router + ".publish" }

// RouterPresence is the subject of meshv1.PresenceFrame for one router.
func RouterPresence(router string) string { return "router." + router + ".presence" }

var idPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// CheckID reports what is wrong with the id of an edge, router, store or compute node: it is a part
// of subjects.
func CheckID(id string) error {
	if !idPattern.MatchString(id) {
		return fmt.Errorf("id %q must be 1 to 64 characters of A-Z a-z 0-9 _ -", id)
	}
	return nil
}
