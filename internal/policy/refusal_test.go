package policy

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// tomorrow is a field, number 1,000, of a newer version.
var tomorrow = []byte{0xc0, 0x3e, 1}

func newer[M proto.Message](m M) M {
	m.ProtoReflect().SetUnknown(tomorrow)
	return m
}

func TestAnUnknownTableRefusesEveryTopic(t *testing.T) {
	table := Unknown("not yet")
	if table.Known() == nil {
		t.Fatal("the table passes for known")
	}
	for _, filter := range []string{"orders/1", "room/1", "default", "$dead/orders", "#", "room/+", "a/#"} {
		why := table.Refuses(filter)
		if why == nil || why.Code != wirev1.Code_CODE_UNAVAILABLE || why.RetryAfter <= 0 {
			t.Errorf("%s: %v", filter, why)
		}
	}
	p := table.For("orders/1")
	if p.Refusal == nil || !p.Durable || p.Retention != MaxRetention || p.DedupeWindow != MaxDedupeWindow || p.MaxAttempts != maxAttempts || p.Claims.Holders != 0 || !p.KeepLast {
		t.Errorf("a policy that is not known must lose nothing: %+v", p)
	}
}

func TestANamespaceThatIsNotUnderstoodIsRefusedAndOthersAreNot(t *testing.T) {
	for name, bad := range map[string]*pushmeshv1.Namespace{
		"unsound policy":          ns("orders/eu", &pushmeshv1.Policy{Retention: durationpb.New(-1)}),
		"a field of the policy":   ns("orders/eu", newer(&pushmeshv1.Policy{})),
		"a field of the claims":   ns("orders/eu", &pushmeshv1.Policy{Claims: newer(&pushmeshv1.ClaimPolicy{})}),
		"a field of a duration":   ns("orders/eu", &pushmeshv1.Policy{Retention: newer(durationpb.New(1e12))}),
		"a field of the scorer":   ns("orders/eu", &pushmeshv1.Policy{Rank: &pushmeshv1.RankPolicy{Weighted: newer(&pushmeshv1.WeightedScorer{Bias: 1})}}),
		"a field of the message":  newer(ns("orders/eu", &pushmeshv1.Policy{})),
		"the store's word":        {Prefix: "orders/eu", Policy: &pushmeshv1.Policy{}, NotUnderstood: "a field"},
		"an overflow":             ns("orders/eu", &pushmeshv1.Policy{Overflow: 99}),
		"a prefix with wildcards": ns("orders/eu/+/x", &pushmeshv1.Policy{}),
	} {
		t.Run(name, func(t *testing.T) {
			if Check(bad) == nil {
				t.Fatal("it passes for understood")
			}
			table := NewTable([]*pushmeshv1.Namespace{
				bad, ns("orders", &pushmeshv1.Policy{Durable: true}), ns("orders/eu/fr", &pushmeshv1.Policy{MaxAttempts: 3}),
			})
			if table.Known() != nil {
				t.Error("the other namespaces are known")
			}
			for filter, refused := range map[string]bool{
				"orders/eu": true, "orders/eu/1": true, "orders/+/1": true, "#": true, "orders/#": true, "+/+": true,
				"orders/1": false, "orders/eu/fr/1": false, "orders/eufr": false, "room/1": false, "room/#": false, "$dead/#": false, "x": false,
			} {
				why := table.Refuses(filter)
				if (why != nil) != refused {
					t.Errorf("%s: %v", filter, why)
				}
				if why != nil && (why.Code != wirev1.Code_CODE_UNAVAILABLE || !strings.Contains(why.Message, `"orders/eu`)) {
					t.Errorf("%s: %v", filter, why)
				}
			}
			if p := table.For("orders/eu/1"); p.Refusal == nil || !p.Durable || p.Retention != MaxRetention || !p.KeepLast {
				t.Errorf("%+v", p)
			}
			if p := table.For("orders/eu/fr/1"); p.Refusal != nil || p.MaxAttempts != 3 {
				t.Errorf("%+v", p)
			}
		})
	}
}

// A prefix of a kind that this version does not know may stand for any topic.
func TestANamespaceWithoutALiteralPrefixRefusesWhatNoOtherCovers(t *testing.T) {
	for _, prefix := range []string{"#", "+/x", "", "/a"} {
		table := NewTable([]*pushmeshv1.Namespace{ns(prefix, &pushmeshv1.Policy{}), ns("orders", &pushmeshv1.Policy{})})
		if table.Refuses("x/1") == nil || table.Refuses("#") == nil {
			t.Errorf("prefix %q: topics without a namespace are taken", prefix)
		}
		if table.Refuses("orders/1") != nil || table.Refuses("room/1") != nil {
			t.Errorf("prefix %q: topics with a namespace are refused", prefix)
		}
	}
}
