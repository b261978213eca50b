package publish

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// logs answers as routers do: the first message of a topic has the number 1.
func (b *bench) logs(durable func(topic string) bool) {
	seqs := map[string]uint64{}
	b.by = func(_ context.Context, _ string, req *meshv1.ClientPublish) (all []*meshv1.ClientPublishReply_Result, err error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, it := range req.GetItems() {
			r := &meshv1.ClientPublishReply_Result{}
			if durable(it.GetTopic()) {
				seqs[it.GetTopic()]++
				r.Seq = seqs[it.GetTopic()]
			}
			all = append(all, r)
		}
		return all, nil
	}
}

// Clients of an address make as many topics as they may in an hour; topics that are there, those of
// other addresses and ephemeral ones are taken.
func TestTopicsOfAnAddressAreBounded(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		const anHour = 60
		b.topics.anHour = anHour
		b.logs(b.cfg.Durable)
		id := uint32(0)
		publish := func(origin, topic string) *meshv1.ClientPublishReply_Result {
			id++
			b.Publish(exchange.Conn{Slot: id % 3}, origin, id, &meshv1.ClientPublish_Item{Topic: topic})
			pass(20 * time.Millisecond)
			got := b.got()
			return got[len(got)-1].Result
		}
		want := func(origin, topic string, code wirev1.Code) *meshv1.ClientPublishReply_Result {
			t.Helper()
			r := publish(origin, topic)
			if r.GetCode() != code {
				t.Fatalf("%s to %s: %v, want %v", origin, topic, r, code)
			}
			return r
		}
		want("b", "old", wirev1.Code_CODE_OK)
		for i := range anHour {
			want("a", fmt.Sprint("made ", i), wirev1.Code_CODE_OK)
		}
		r := want("a", "one more", wirev1.Code_CODE_RATE_LIMITED)
		if wait := time.Duration(r.GetRetryAfterMs()) * time.Millisecond; wait < 58*time.Second || wait > time.Minute || !strings.Contains(r.GetError(), "--address-topics") {
			t.Errorf("%v, want a minute to wait, and the flag", r)
		}
		want("a", "made 0", wirev1.Code_CODE_OK)
		want("a", "old", wirev1.Code_CODE_OK) // another address has made it
		want("a", "passing", wirev1.Code_CODE_OK)
		want("b", "one more", wirev1.Code_CODE_OK)
		want("a", "one more", wirev1.Code_CODE_OK) // it is there now
		want("", "of an exempt address", wirev1.Code_CODE_OK)
		pass(time.Duration(r.GetRetryAfterMs()) * time.Millisecond)
		want("a", "a minute later", wirev1.Code_CODE_OK)
		want("a", "and another", wirev1.Code_CODE_RATE_LIMITED)
		if n := b.TooManyTopics(); n != 2 {
			t.Errorf("%d are counted", n)
		}
		b.topics.anHour = 0
		for i := range 3 * anHour {
			want("c", fmt.Sprint("without a bound ", i), wirev1.Code_CODE_OK)
		}
	})
}

// What a quota knows is bounded, and those who made the most are not forgotten for others.
func TestWhatAQuotaKnowsIsBounded(t *testing.T) {
	q := newQuota(10, "clients of this address have", "--address-topics")
	made := &meshv1.ClientPublishReply_Result{Seq: 1}
	for i := range 11 {
		q.note("rude", fmt.Sprint("rude ", i), made)
	}
	for i := range 3 * makersKnown {
		q.note(fmt.Sprint(i), fmt.Sprint("topic ", i), made)
	}
	if len(q.makers) > makersKnown || len(q.recent) > topicsKnown || len(q.before) > topicsKnown {
		t.Errorf("%d addresses, %d and %d topics", len(q.makers), len(q.recent), len(q.before))
	}
	if q.check("rude", "another one") == nil {
		t.Error("who made the most is forgotten")
	}
	if why := q.check("rude", fmt.Sprint("topic ", 3*makersKnown-1)); why != nil {
		t.Errorf("a topic that was just published to: %v", why)
	}
	q.note("rude", "again", &meshv1.ClientPublishReply_Result{Seq: 1, Duplicate: true})
	q.note("new", "again", &meshv1.ClientPublishReply_Result{Seq: 1, Duplicate: true})
	if q.makers["new"] != nil {
		t.Error("what was there before is counted")
	}
}

// Who waits for as long as it was told makes one more topic; who owes very much is told a day.
func TestHowLongTheQuotaOfTopicsTellsToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := &meshv1.ClientPublishReply_Result{Seq: 1}
		for _, anHour := range []int{7, 1, 11_000, 20_000} {
			q := newQuota(anHour, "clients of this address have", "--address-topics")
			for i := range anHour {
				q.note("a", fmt.Sprint(i), made)
			}
			told := failed(q.check("a", "one more")).GetRetryAfterMs()
			<-time.After(time.Duration(told) * time.Millisecond)
			if why := q.check("a", "one more"); told == 0 || why != nil {
				t.Errorf("%d an hour: after %d ms as told: %v", anHour, told, why)
			}
		}
		q := newQuota(1, "clients of this address have", "--address-topics")
		for i := range itemsWaiting {
			q.note("a", fmt.Sprint(i), made)
		}
		if told := failed(q.check("a", "one more")).GetRetryAfterMs(); told != uint32(longest.Milliseconds()) {
			t.Errorf("who owes years is told %d ms", told)
		}
	})
}

// A user makes as many topics as it may in an hour, whatever addresses it comes from; others, and
// those who have proven no name, go on.
func TestTopicsOfAUserAreBounded(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		const anHour = 10
		b.users.anHour = anHour
		b.logs(b.cfg.Durable)
		id := uint32(0)
		want := func(origin, user, topic string, code wirev1.Code) {
			t.Helper()
			id++
			b.Publish(exchange.Conn{Slot: id % 3}, origin, id, &meshv1.ClientPublish_Item{Topic: topic, User: user})
			pass(20 * time.Millisecond)
			got := b.got()
			if r := got[len(got)-1].Result; r.GetCode() != code || code != wirev1.Code_CODE_OK && !strings.Contains(r.GetError(), "--user-topics") {
				t.Fatalf("%s of %s to %s: %v, want %v", user, origin, topic, r, code)
			}
		}
		for i := range anHour {
			want(fmt.Sprint("address ", i), "ann", fmt.Sprint("made ", i), wirev1.Code_CODE_OK)
		}
		want("", "ann", "one more", wirev1.Code_CODE_RATE_LIMITED)
		want("another address", "ann", "one more", wirev1.Code_CODE_RATE_LIMITED)
		want("another address", "ann", "made 3", wirev1.Code_CODE_OK)
		want("address 1", "bob", "bob's", wirev1.Code_CODE_OK)
		for i := range 2 * anHour {
			want("address 1", "", fmt.Sprint("nobody's ", i), wirev1.Code_CODE_OK)
		}
		pass(time.Hour / anHour)
		want("", "ann", "a while later", wirev1.Code_CODE_OK)
	})
}
