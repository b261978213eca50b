package deadletter

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func letterOf(t *testing.T, name string, m *wirev1.Message) *meshv1.DeadLetter {
	t.Helper()
	body, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return &meshv1.DeadLetter{
		Id: 7, Topic: name, Epoch: 5, Seq: 9, Body: body, Reason: wirev1.Code_CODE_EXPIRED, Attempts: 3, User: "u", Session: "s", At: uint64(now.UnixMicro()),
	}
}

func TestTargets(t *testing.T) {
	long := strings.Repeat("x", policy.MaxPrefix)
	table := policy.NewTable([]*pushmeshv1.Namespace{
		{Prefix: "ops", Policy: &pushmeshv1.Policy{Durable: true}},
		{Prefix: "jobs", Policy: &pushmeshv1.Policy{Durable: true, DeadLetterTopic: "ops/dead"}},
		{Prefix: "jobs/odd", Policy: &pushmeshv1.Policy{Durable: true, DeadLetterTopic: "cursors/dead"}},
		{Prefix: long, Policy: &pushmeshv1.Policy{Durable: true}},
	})
	off := policy.NewTable([]*pushmeshv1.Namespace{{Prefix: policy.Dead, Policy: &pushmeshv1.Policy{}}})
	for _, c := range []struct {
		table    *policy.Table
		of, want string
	}{
		{table, "room/1", "$dead/room"},
		{table, "jobs/1", "ops/dead"},
		{table, "jobs/odd/1", "$dead/jobs/odd"}, // what it names is ephemeral
		{table, "anything", "$dead/default"},
		{table, long + "/1", "$dead/" + long},
		{table, "$dead/room", ""},
		{table, "$deadly/x", "$dead/default"},
		{off, "room/1", ""},
	} {
		if got := target(c.of, c.table); got != c.want {
			t.Errorf("%s: %q, want %q", c.of, got, c.want)
		}
	}
}

func TestACopySaysWhatItIsOf(t *testing.T) {
	table := policy.NewTable(nil)
	l := letterOf(t, "room/1", &wirev1.Message{
		Payload: []byte("p"), Id: []byte("0123456789abcdef"), Headers: map[string]string{"k": "v"}, Priority: 4, From: "sender", Traceparent: "tp", PublishedAt: 1,
	})
	item, why := copyOf(l, table, now)
	if why != wirev1.Code_CODE_OK {
		t.Fatal(why)
	}
	m := &wirev1.Message{}
	if err := proto.Unmarshal(item.GetBody(), m); err != nil {
		t.Fatal(err)
	}
	want := &wirev1.Message{
		Payload: []byte("p"), Id: item.GetMessageId(), Priority: 4, From: "sender", Traceparent: "tp", PublishedAt: uint64(now.UnixMicro()),
		Headers: map[string]string{
			"k": "v", "dead-letter-id": "7", "dead-letter-reason": "EXPIRED", "dead-letter-attempts": "3", "dead-letter-topic": "room/1", "dead-letter-seq": "9",
			"dead-letter-epoch": "5", "dead-letter-user": "u", "dead-letter-session": "s", "dead-letter-message-id": "30313233343536373839616263646566",
			"dead-letter-at": "1772366400000000",
		},
	}
	if !proto.Equal(m, want) {
		t.Errorf("got %v, want %v", m, want)
	}
	if item.GetTopic() != "$dead/room" || item.GetCopiedLetter() != 7 || item.GetDedupeKey() == "" || item.GetExpiresAt() != 0 || item.GetPublishedAt() != m.GetPublishedAt() {
		t.Errorf("item %v", item)
	}
	id := item.GetMessageId()
	if ms := uint64(now.UnixMilli()); len(id) != 16 || id[6]>>4 != 7 || id[8]>>6 != 2 || id[0] != byte(ms>>40) || id[5] != byte(ms) {
		t.Errorf("%x is no UUIDv7 of the letter's time", id)
	}
	again, _ := copyOf(l, table, now.Add(time.Hour))
	l.Id++
	other, _ := copyOf(l, table, now)
	if string(again.GetMessageId()) != string(id) || again.GetDedupeKey() != item.GetDedupeKey() || string(other.GetMessageId()) == string(id) || other.GetDedupeKey() == item.GetDedupeKey() {
		t.Errorf("a repetition: %v, another letter: %v", again, other)
	}
}

func TestWhatIsNotCopied(t *testing.T) {
	table := policy.NewTable(nil)
	copied, _ := copyOf(letterOf(t, "room/1", &wirev1.Message{}), table, now)
	unreadable := letterOf(t, "room/1", nil)
	unreadable.Body = []byte{0xff}
	for name, c := range map[string]struct {
		letter *meshv1.DeadLetter
		want   wirev1.Code
	}{
		"of a dead-letter topic": {letterOf(t, "$dead/room", &wirev1.Message{}), wirev1.Code_CODE_UNSUPPORTED},
		"of a copy":              {&meshv1.DeadLetter{Topic: "ops/dead", Body: copied.GetBody()}, wirev1.Code_CODE_UNSUPPORTED},
		"unreadable":             {unreadable, wirev1.Code_CODE_INTERNAL},
	} {
		if item, why := copyOf(c.letter, table, now); item != nil || why != c.want {
			t.Errorf("%s: %v, %v", name, item, why)
		}
	}
}
