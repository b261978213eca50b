package router

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/router/internal/audit"
)

// records of a call that are in the log of its topic.
func (m *mesh) records(tb testing.TB, call string) (all []audit.Record) {
	tb.Helper()
	for _, r := range m.log.topic("$audit/" + call) {
		var msg wirev1.Message
		shared, _ := wire.Cut(r.GetBody())
		if err := proto.Unmarshal(shared, &msg); err != nil {
			tb.Fatal(err)
		}
		var one audit.Record
		if err := json.Unmarshal(msg.GetPayload(), &one); err != nil {
			tb.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}

// audited waits until there is a record of a call with an outcome.
func (m *mesh) audited(tb testing.TB, call, outcome string) (found audit.Record) {
	tb.Helper()
	eventually(tb, "a record of "+call, func() error {
		all := m.records(tb, call)
		for _, found = range all {
			if found.Outcome == outcome {
				return nil
			}
		}
		return fmt.Errorf("there are %+v", all)
	})
	return found
}

// TestWhatRecordsSay makes every change that the docs list, and compares what its record has of
// before and after with what they say.
func TestWhatRecordsSay(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	edges := []*fakeEdge{startEdge(t, m.nats.ClientURL(), "a", "r1"), startEdge(t, m.nats.ClientURL(), "b", "r1")}
	for _, e := range edges {
		e.want("x")
	}
	var (
		ctx        = t.Context()
		namespaces = pushmeshv1.NewNamespaceServiceClient(m.conn)
		rank       = pushmeshv1.NewRankServiceClient(m.conn)
		sessions   = pushmeshv1.NewSessionServiceClient(m.conn)
		access     = pushmeshv1.NewAccessServiceClient(m.conn)
		members    = pushmeshv1.NewMembershipServiceClient(m.conn)
		letters    = pushmeshv1.NewDeadLetterServiceClient(m.conn)
		nodes      = pushmeshv1.NewMeshServiceClient(m.conn)
		kept       = pushmeshv1.NewKeptServiceClient(m.conn)
		rolling    = &pushmeshv1.RankPolicy{Model: &pushmeshv1.ModelScorer{Name: "ctr", Version: 1, NextVersion: 2, NextShare: 0.5}}
	)
	place := func(prefix string, retention time.Duration, rank *pushmeshv1.RankPolicy) func() error {
		return func() error {
			_, err := namespaces.Put(ctx, &pushmeshv1.NamespaceServicePutRequest{Namespace: &pushmeshv1.Namespace{
				Prefix: prefix, Policy: &pushmeshv1.Policy{Durable: true, MaxAttempts: uint32(retention.Hours()), Rank: rank},
			}})
			return err
		}
	}
	model := func() error {
		_, err := putModel(t, m.conn, &pushmeshv1.PutModelRequest{Name: "ctr"}, modelFile(t, "lightgbm-stump.txt"), 1<<20)
		return err
	}
	m.log.mu.Lock()
	m.log.sessions["ann/s"] = &pushmeshv1.Session{User: "ann", Name: "s", Generation: 3}
	m.log.sessions["client:phone/s"] = &pushmeshv1.Session{User: "client:phone", Name: "s"}
	m.log.mu.Unlock()
	if err := errors.Join(model(), model(), place("rolling", time.Hour, rolling)(), place("orders", time.Hour, nil)()); err != nil {
		t.Fatal(err)
	}
	has := func(state json.RawMessage, want string) bool {
		return strings.Contains(string(state), want) && (want == "") == (len(state) == 0)
	}
	calls := []struct {
		name          string
		do            func() error
		before, after string // what is in it; "": it is not said
	}{
		{"NamespaceService/Put", place("orders", 2*time.Hour, nil), `"maxAttempts":1`, `"maxAttempts":2`},
		{"NamespaceService/Delete", func() error {
			_, err := namespaces.Delete(ctx, &pushmeshv1.NamespaceServiceDeleteRequest{Prefix: "orders"})
			return err
		}, `"maxAttempts":2`, "null"},
		{"RankService/RollBack", func() error {
			_, err := rank.RollBack(ctx, &pushmeshv1.RollBackRequest{Name: "ctr"})
			return err
		}, `"next_version":2`, `{"rolling":{"name":"ctr","version":1}}`},
		{"RankService/PutModel", model, `"version":"2"`, `"version":"3"`},
		{"RankService/DeleteModel", func() error {
			_, err := rank.DeleteModel(ctx, &pushmeshv1.DeleteModelRequest{Name: "ctr", Version: 3})
			return err
		}, `"version":"3"`, "null"},
		{"SessionService/Adopt", func() error {
			_, err := sessions.Adopt(ctx, &pushmeshv1.AdoptRequest{User: "client:phone", Name: "s", ToUser: "ann", ToName: "t"})
			return err
		}, `"user":"client:phone"`, `{"name":"t","user":"ann"}`},
		{"SessionService/Delete", func() error {
			_, err := sessions.Delete(ctx, &pushmeshv1.SessionServiceDeleteRequest{User: "ann", Name: "s"})
			return err
		}, `"generation":"3"`, "null"},
		{"SessionService/Disconnect", func() error {
			_, err := sessions.Disconnect(ctx, &pushmeshv1.DisconnectRequest{User: "ann", Code: wirev1.Code_CODE_FORBIDDEN, Reason: "bad"})
			return err
		}, "", `{"code":"FORBIDDEN","disconnected":4,"reason":"bad"}`},
		{"SessionService/SetProfile", func() error {
			_, err := sessions.SetProfile(ctx, &pushmeshv1.SetProfileRequest{User: "ann", Profile: map[string]float64{"sport": 1}, Vector: []float32{1, 2}})
			return err
		}, "", `{"connections":6,"profile":{"sport":1},"vector_dimensions":2}`},
		{"AccessService/Revoke", func() error {
			_, err := access.Revoke(ctx, &pushmeshv1.AccessServiceRevokeRequest{User: "ann", Reason: "a phone was stolen"})
			return err
		}, "", `"reason":"a phone was stolen"`},
		{"AccessService/Restore", func() error {
			_, err := access.Restore(ctx, &pushmeshv1.AccessServiceRestoreRequest{User: "ann"})
			return err
		}, "", "null"},
		{"MembershipService/PutTeam", func() error {
			_, err := members.PutTeam(ctx, &pushmeshv1.PutTeamRequest{Team: &pushmeshv1.Team{Name: "editors", Subscribe: []string{"doc/#"}}})
			return err
		}, `"before/#"`, `"doc/#"`},
		{"MembershipService/DeleteTeam", func() error {
			_, err := members.DeleteTeam(ctx, &pushmeshv1.DeleteTeamRequest{Name: "editors"})
			return err
		}, `"name":"editors"`, "null"},
		{"MembershipService/Add", func() error {
			_, err := members.Add(ctx, &pushmeshv1.MembershipServiceAddRequest{Team: "editors", Users: []string{"ann"}})
			return err
		}, "", `{"added":1,"team":"editors","users":["ann"]}`},
		{"MembershipService/Remove", func() error {
			_, err := members.Remove(ctx, &pushmeshv1.MembershipServiceRemoveRequest{Team: "editors", Users: []string{"ann", "bob"}})
			return err
		}, "", `{"removed":2,"team":"editors","users":["ann","bob"]}`},
		{"DeadLetterService/Replay", func() error {
			_, err := letters.Replay(ctx, &pushmeshv1.DeadLetterServiceReplayRequest{Ids: []uint64{3, 4}})
			return err
		}, "", `{"failed":0,"ids":[3,4],"replayed":2}`},
		{"DeadLetterService/Discard", func() error {
			_, err := letters.Discard(ctx, &pushmeshv1.DeadLetterServiceDiscardRequest{Ids: []uint64{5}})
			return err
		}, "", `{"discarded":1,"ids":[5]}`},
		{"KeptService/Delete", func() error {
			_, err := namespaces.Put(ctx, &pushmeshv1.NamespaceServicePutRequest{Namespace: &pushmeshv1.Namespace{
				Prefix: "state", Policy: &pushmeshv1.Policy{Durable: true, Keep: pushmeshv1.Keep_KEEP_LAST},
			}})
			if err == nil {
				_, err = m.pub.Publish(ctx, &pushmeshv1.PublishRequest{Topic: "state/lamp", Payload: []byte("on")})
			}
			if err == nil {
				_, err = kept.Delete(ctx, &pushmeshv1.KeptServiceDeleteRequest{Topic: "state/lamp"})
			}
			return err
		}, `"topic":"state/lamp"`, `"topic":"state/lamp"`},
		{"MeshService/Rebalance", func() error {
			_, err := nodes.Rebalance(ctx, &pushmeshv1.RebalanceRequest{Edge: "a", Share: 0.5})
			return err
		}, "", `{"connections":0,"share":0.5,"within":"30s"}`},
		{"MeshService/AcceptServer", func() error {
			_, err := nodes.AcceptServer(ctx, &pushmeshv1.AcceptServerRequest{Epoch: pushmeshv1.AcceptServerRequest_EPOCH_NEW, Database: "b"})
			return err
		}, `"timeline":1`, `"shards":1024`},
	}
	data, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range calls {
		eventually(t, c.name, c.do)
		eventually(t, "the record of "+c.name, func() error {
			all := m.records(t, c.name)
			for _, r := range all {
				if r.Outcome == "OK" && has(r.Before, c.before) && has(r.After, c.after) {
					return nil
				}
			}
			return fmt.Errorf("none of %+v has %q before and %q after", all, c.before, c.after)
		})
		row := regexp.MustCompile("(?m)^\\| `\\$audit/" + c.name + "` \\| ([^|]*) \\| ([^|]*) \\|").FindStringSubmatch(string(data))
		if row == nil {
			t.Errorf("%s is not in the docs", c.name)
		} else if strings.HasPrefix(row[1], "not said: ") != (c.before == "") || strings.HasPrefix(row[2], "not said: ") != (c.after == "") {
			t.Errorf("%s: the docs say %q", c.name, row[1:])
		}
	}
	if n := len(regexp.MustCompile("(?m)^\\| `\\$audit/").FindAllString(string(data), -1)); n != len(calls) {
		t.Errorf("the docs list %d changes, %d were made", n, len(calls))
	}
}

// A record names each user who comes to a team, however many come at once, and all that a team
// grants: nobody is given rights behind others' names.
func TestRecordsNameEveryUser(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	members := pushmeshv1.NewMembershipServiceClient(m.conn)
	var users []string
	for i := range 1000 {
		users = append(users, fmt.Sprintf("%060d", i))
	}
	one := &pushmeshv1.Team{Name: "editors"}
	for i := range 64 {
		one.Subscribe = append(one.Subscribe, fmt.Sprintf("doc/%0120d", i))
	}
	if _, err := members.Add(t.Context(), &pushmeshv1.MembershipServiceAddRequest{Team: "editors", Users: users}); err != nil {
		t.Fatal(err)
	}
	if _, err := members.Remove(t.Context(), &pushmeshv1.MembershipServiceRemoveRequest{Team: "editors", Users: users}); err != nil {
		t.Fatal(err)
	}
	if _, err := members.PutTeam(t.Context(), &pushmeshv1.PutTeamRequest{Team: one}); err != nil {
		t.Fatal(err)
	}
	for call, last := range map[string]string{"Add": users[999], "Remove": users[999], "PutTeam": one.Subscribe[63]} {
		if r := m.audited(t, "MembershipService/"+call, "OK"); !strings.Contains(string(r.After), last) {
			t.Errorf("%s: the last of what was asked for is not in a record of %d bytes", call, len(r.After))
		}
	}
	for i := range users {
		users[i] = fmt.Sprintf("%0180d", i)
	}
	if _, err := members.Add(t.Context(), &pushmeshv1.MembershipServiceAddRequest{Team: "editors", Users: users}); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
		t.Errorf("more than a record can name: %v", err)
	}
}

// A change that fails has a record with its code, and what was there; one whose before can't be
// read is made all the same.
func TestFailedChangesHaveRecords(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	namespaces := pushmeshv1.NewNamespaceServiceClient(m.conn)
	if _, err := namespaces.Delete(t.Context(), &pushmeshv1.NamespaceServiceDeleteRequest{Prefix: "nowhere"}); code.Of(err) != wirev1.Code_CODE_NOT_FOUND {
		t.Fatal(err)
	}
	r := m.audited(t, "NamespaceService/Delete", "NOT_FOUND")
	if r.About != "nowhere" || string(r.Before) != "null" || r.After != nil || r.Message == "" || !strings.HasPrefix(r.Who, "host:") || r.Router != "r1" {
		t.Errorf("%+v", r)
	}
	if _, err := namespaces.Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{Namespace: &pushmeshv1.Namespace{Prefix: "x"}}); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
		t.Fatal(err)
	}
	if r := m.audited(t, "NamespaceService/Put", "INVALID_ARGUMENT"); r.Before != nil || r.After != nil {
		t.Errorf("%+v", r)
	}
}

// What can't be published holds up no operator: it waits, and is published when the store takes it.
func TestNobodyWaitsForTheAudit(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	gate := make(chan struct{})
	m.store.mu.Lock()
	m.store.gate = gate
	m.store.mu.Unlock()
	namespaces := pushmeshv1.NewNamespaceServiceClient(m.conn)
	for range 3 {
		if _, err := namespaces.Delete(t.Context(), &pushmeshv1.NamespaceServiceDeleteRequest{Prefix: "nowhere"}); code.Of(err) != wirev1.Code_CODE_NOT_FOUND {
			t.Fatal(err)
		}
	}
	if err := m.sample(t, "pushmesh_router_audit_waiting", "3"); err != nil {
		t.Error(err)
	}
	close(gate)
	eventually(t, "the records", func() error {
		if n := len(m.records(t, "NamespaceService/Delete")); n != 3 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
}

// Nobody but the mesh publishes on $audit, whatever its roles, over whichever way.
func TestNobodyPublishesRecords(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	if _, err := m.pub.Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: "$audit/NamespaceService/Put"}); code.Of(err) != wirev1.Code_CODE_FORBIDDEN {
		t.Error(err)
	}
	namespaces := pushmeshv1.NewNamespaceServiceClient(m.conn)
	for _, ns := range []*pushmeshv1.Namespace{
		{Prefix: "x", Policy: &pushmeshv1.Policy{Durable: true, DeadLetterTopic: "$audit/NamespaceService/Put"}},
		{Prefix: "$audit", Policy: &pushmeshv1.Policy{}},
		{Prefix: "$audit/NamespaceService", Policy: &pushmeshv1.Policy{}},
		{Prefix: "$auditor", Policy: &pushmeshv1.Policy{Durable: true}},
	} {
		if _, err := namespaces.Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{Namespace: ns}); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
			t.Errorf("%v: %v", ns, err)
		}
	}
	if _, err := namespaces.Delete(t.Context(), &pushmeshv1.NamespaceServiceDeleteRequest{Prefix: "$audit"}); code.Of(err) != wirev1.Code_CODE_FORBIDDEN {
		t.Error(err)
	}
	for _, prefix := range []string{"$audit", "$audit/NamespaceService"} {
		if _, err := namespaces.Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{Namespace: &pushmeshv1.Namespace{Prefix: prefix, Policy: &pushmeshv1.Policy{Durable: true}}}); err != nil {
			t.Errorf("%s: %v", prefix, err)
		}
	}
}
