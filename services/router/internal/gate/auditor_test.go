package gate

import (
	"testing"

	"github.com/pushmesh/pushmesh/internal/code"
	pb "github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Check and Watch for an owner are what keeps the owner's place, and accept what is granted to it:
// an auditor, who changes nothing, has them without an owner alone.
func TestAnAuditorDoesNothingForAnOwner(t *testing.T) {
	t.Parallel()
	s := serve(t, map[string][]string{"auditor": {"auditor"}, "both": {"auditor", "claimant:mine/#"}, "operator": {"operator"}})
	api := pb.NewClaimServiceClient(s.conn)
	for _, c := range []struct {
		who, resource, owner string
		may                  bool
	}{
		{"auditor", "mine/1", "", true},
		{"auditor", "mine/1", "ann", false},
		{"both", "mine/1", "ann", true},
		{"both", "other/1", "ann", false},
		{"both", "other/1", "", true},
		{"operator", "other/1", "ann", true},
	} {
		_, err := api.Check(s.as(t, c.who), &pb.CheckRequest{Resource: c.resource, Owner: c.owner})
		if (code.Of(err) != wirev1.Code_CODE_FORBIDDEN) != c.may {
			t.Errorf("%s checks %s for the owner %q: %v", c.who, c.resource, c.owner, err)
		}
		watch, err := api.Watch(s.as(t, c.who), &pb.WatchRequest{Resource: c.resource, Owner: c.owner})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = watch.Recv(); (code.Of(err) != wirev1.Code_CODE_FORBIDDEN) != c.may {
			t.Errorf("%s watches %s for the owner %q: %v", c.who, c.resource, c.owner, err)
		}
	}
}
