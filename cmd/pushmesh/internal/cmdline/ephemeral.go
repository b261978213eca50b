package cmdline

import (
	"context"
	"fmt"
	"io"
	"strings"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// DefaultPrefix is the namespace of topics that no other one covers.
const DefaultPrefix = "default"

// NamespaceOf finds the namespace of a topic; nil where that can't be known now.
func NamespaceOf(ctx context.Context, conn grpc.ClientConnInterface, topic string) *pushmeshv1.Namespace {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	answer, err := pushmeshv1.NewNamespaceServiceClient(conn).List(ctx, &pushmeshv1.NamespaceServiceListRequest{})
	if err != nil {
		return nil // it was for a note only
	}
	var best *pushmeshv1.Namespace
	for _, n := range answer.GetNamespaces() {
		prefix := n.GetPrefix()
		switch {
		case prefix == DefaultPrefix && best == nil:
			best = n
		case prefix != DefaultPrefix && (topic == prefix || strings.HasPrefix(topic, prefix+"/")):
			if best == nil || best.GetPrefix() == DefaultPrefix || len(prefix) > len(best.GetPrefix()) {
				best = n
			}
		}
	}
	return best
}

// NoteEphemeral says that nothing is kept of a topic, which is a surprise where nobody has said so.
func NoteEphemeral(w io.Writer, n *pushmeshv1.Namespace, topic string) {
	switch {
	case n == nil || n.GetPolicy().GetDurable():
	case n.GetPrefix() == DefaultPrefix:
		first, _, _ := strings.Cut(topic, "/")
		fmt.Fprintf(w, "%s is ephemeral, because no durable namespace covers it: its messages are not stored (pushmesh namespace put %s --durable changes that)\n", topic, first)
	default:
		fmt.Fprintf(w, "%[2]s is ephemeral, because namespace %[1]s is not durable: its messages are not stored\n", n.GetPrefix(), topic)
	}
}
