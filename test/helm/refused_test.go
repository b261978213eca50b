package helm

import (
	"strings"
	"testing"
)

// What can't work is refused before anything is made, with a sentence that says what to do.
func TestRefused(t *testing.T) {
	t.Parallel()
	h := open(t)
	for _, c := range []struct{ set, says string }{
		{"mesh.plainTiers=false", "nothing says how tiers know each other"},
		{"mesh.existingSecrets.edge=a,mesh.existingSecrets.router=b", "mesh.existingSecrets lacks store, compute"},
		{"mesh.certManager.enabled=true,mesh.certManager.issuerRef.name=ca,mesh.existingSecrets.edge=a", "exclude each other: which of them has the certificates?"},
		{"mesh.certManager.enabled=true", "mesh.certManager.issuerRef.name is empty"},
		{"mesh.plainTiers=false,mesh.certManager.enabled=true,mesh.certManager.issuerRef.name=ca", "with certificates NATS is reached by tls://"},
		{"nats.urls=null", "nats.urls is empty"},
		{"nats.urls={nats://user:secret@nats:4222}", "nats.urls has a user or a password"},
		{"nats.urls={http://nats:4222}", "'http://nats:4222' does not match pattern"},
		{"nats.user=pushmesh", "nats.user and nats.passwordExistingSecret belong together"},
		{"nats.passwordExistingSecret=pushmesh", "nats.user and nats.passwordExistingSecret belong together"},
		{"postgres.existingSecret=", "postgres.existingSecret is empty"},
		{"postgres.ownerExistingSecret=", "postgres.ownerExistingSecret is empty"},
		{"postgres.caExistingSecret=a,postgres.caConfigMap=b", "postgres.caExistingSecret and postgres.caConfigMap exclude each other"},
		{"identity.open=false", "nothing says who may subscribe"},
		{"identity.connectHook=https://example.org", "identity.open lets everybody in"},
		{"identity.webhookSecretExistingSecret=a", "nothing else is signed"},
		{"backends.open=false", "nothing says who may publish"},
		{"backends.existingSecret=a", "backends.open lets everybody do everything"},
		{"backends.issuersExistingSecret=a", "needs backends.existingSecret, which says whose tokens are taken"},
		{"edge.tls.required=true", "there is no TLS without a certificate"},
		{"router.tls.clientCAExistingSecret=a", "there is no TLS without a certificate"},
		{"edge.settings.drain=5s", "edge.settings has drain, which the chart sets by another value"},
		{"defaults.settings.plain-tiers=true", "router.settings has plain-tiers"},
		{"store.settings.db=postgres://a", "store.settings has db, which the chart sets"},
		{"store.settings.shard-db.b=postgres://u:secret@db2/x", "store.settings has a password in shard-db"},
		{"store.extraArgs={--db=postgres://db}", "everybody who lists processes would have it"},
		{"store.extraArgs={--db-owner,$(OWNER)}", "everybody who lists processes would have it"},
		{"edge.drain.seconds=10,edge.drain.graceSeconds=20", "15000 connections at 1000 a second and 2.5 s for the last ones take 17.5 s, and 10.0 s are there"},
		{"edge.drain.seconds=18,edge.drain.graceSeconds=20", "and 15.0 s are there"},
		{"edge.drain.seconds=30,edge.drain.graceSeconds=20", "less than edge.drain.seconds with 30"},
		{"edge.terminationGracePeriodSeconds=45", "edge.terminationGracePeriodSeconds is 45, and a planned stop takes up to 46"},
		{"edge.drain.connections=600000", "a stop of an edge takes up to 826 s, and edge.drain.limitSeconds is 600"},
		{"edge.drain.limitSeconds=30", "a stop of an edge takes up to 46 s, and edge.drain.limitSeconds is 30"},
		{"router.terminationGracePeriodSeconds=20", "router.terminationGracePeriodSeconds is 20, and a stop takes up to 30"},
		{"edge.hpa.enabled=true,edge.hpa.minReplicas=11", "more than edge.hpa.maxReplicas with 10"},
		{"edge.hpa.enabled=true,edge.hpa.targetConnections=20000", "for which a stop is planned"},
		{"rebalance.enabled=true,backends.open=false,backends.existingSecret=a", "rebalance has to prove to routers who it is"},
		{"rebalance.enabled=true,router.tls.existingSecret=a,router.tls.required=true", "rebalance.caExistingSecret is empty"},
		{"rebalance.enabled=true,rebalance.tlsExistingSecret=a", "a certificate is shown over TLS alone"},
		{"store.seccompLocalhostProfile=a,store.podSecurityContext.seccompProfile.type=Unconfined", "set one of them"},
		{"edge.resources.limits.memory=lots", "a memory limit of lots can't be read"},
		// by the schema
		{"edge.replica=3", "additional properties 'replica' not allowed"},
		{"edges.replicas=3", "additional properties 'edges' not allowed"},
		{"edge.graceSeconds=30", "additional properties 'graceSeconds' not allowed"},
		{"edge.drain.pace=0", "minimum: got 0, want 1"},
		{"edge.replicas=two", "got string, want integer"},
		{"edge.service.type=ExternalName", "value must be one of"},
		{"edge.settings.Queue=1", "'Queue' does not match pattern"},
		{"image.digest=latest", "'latest' does not match pattern"},
		{"mesh.plainTiers=yes please", "got string, want boolean"},
	} {
		_, err := h.Template("--values", example("open"), "--set", c.set)
		if err == nil {
			t.Errorf("%s is taken, want %q", c.set, c.says)
		} else if !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: no %q in %v", c.set, c.says, err)
		}
	}
}

// All faults are reported at once.
func TestEveryFaultIsSaid(t *testing.T) {
	t.Parallel()
	_, err := open(t).Template()
	if err == nil || !strings.Contains(err.Error(), "the values have 6 fault(s):\n- ") {
		t.Errorf("%v", err)
	}
}

func TestAnOlderKubernetesIsRefused(t *testing.T) {
	t.Parallel()
	_, err := open(t).Template("--values", example("open"), "--kube-version", "1.29.9")
	if err == nil || !strings.Contains(err.Error(), "kubeVersion: >=1.30.0-0") {
		t.Errorf("%v", err)
	}
}
