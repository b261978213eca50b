package router

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Whoever publishes to as many topics as it may, most of them another's, learns what became of each
// in an answer that gRPC clients take, which is 4 MiB.
func TestManyRefusalsFitIntoAnAnswer(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "backends.yaml")
	roles := []string{"publisher:live/mine"}
	for i := range 20 {
		roles = append(roles, fmt.Sprintf("publisher:live/%d/%s", i, strings.Repeat("x", 200)))
	}
	key := keyed(t, path, "orders", roles...)
	m := startMesh(t, func(s *Settings) { s.Open, s.Backends = false, path })
	topics := []string{"live/mine"}
	for len(topics) < 10_000 {
		topics = append(topics, fmt.Sprint("live/", len(topics)))
	}
	res, err := m.pub.Publish(t.Context(), &pushmeshv1.PublishRequest{Topics: topics}, perRPC(key))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the request has %d bytes, the answer %d", proto.Size(&pushmeshv1.PublishRequest{Topics: topics}), proto.Size(res))
	if c := res.GetResults()[0].GetCode(); c != wirev1.Code_CODE_OK {
		t.Errorf("its own topic: %v", c)
	}
	for i, r := range res.GetResults()[1:] {
		if r.GetCode() != wirev1.Code_CODE_FORBIDDEN || i == 0 && !strings.Contains(r.GetError(), "default-deny") {
			t.Fatalf("%s: %v", topics[i+1], r)
		}
	}
	if size, most := proto.Size(res), 1<<20; size > most {
		t.Errorf("the answer has %d bytes, want %d at most", size, most)
	}
}
