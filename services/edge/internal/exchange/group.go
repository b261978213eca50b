package exchange

import (
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Groups is what a loop asks of shared subscriptions. Its methods never block.
type Groups interface {
	// JoinGroup makes a subscription a member of a group; answered by GroupJoined. Every JoinGroup
	// is paired with one LeaveGroup, also when it fails.
	JoinGroup(conn Conn, sub uint32, j *GroupJoin)
	// PauseGroup says that the member takes nothing more.
	PauseGroup(conn Conn, sub uint32)
	// ResumeGroup says that a member that was paused takes messages again.
	ResumeGroup(conn Conn, sub uint32)
	// LeaveGroup ends a member: what it has and did not settle goes to others.
	LeaveGroup(conn Conn, sub uint32)
	// SettleGroup ends what members have of messages that were Assigned to them. The slice is the
	// mesh's to keep.
	SettleGroup(all []GroupSettled)
}

// GroupJoin says what a member wants.
type GroupJoin struct {
	Group, Filter string
	// Key as in Subscribe.group_key.
	Key string
	// Window is the most messages that the member has at a time.
	Window uint32
	// Start of a group that does not exist yet.
	Start GroupStart
	// Origin is the client's address, for which a group counts that it makes; "": it has none that
	// counts.
	Origin string
}

// GroupStart is where a new group begins.
type GroupStart struct {
	Mode      wirev1.Start
	Seq       uint64
	Epoch     uint64
	Positions []*wirev1.Position
}

// GroupSettled is a member's word on one message.
type GroupSettled struct {
	Conn    Conn
	Sub     uint32
	Message *Message
	How     meshv1.GroupSettle_How
	DelayMS uint32
}

// GroupJoined answers JoinGroup.
type GroupJoined struct {
	Conn Conn
	Sub  uint32
	// Epoch and Head of the topic, where the filter is one that is durable.
	Epoch, Head uint64
	Err         error
}

// Assigned hands a member messages of its group. Durable ones count for its window until they are
// settled.
type Assigned struct {
	Conn     Conn
	Sub      uint32
	Messages []*Message
	// Attempts, one for each message.
	Attempts []uint32
}

// GroupEnded says that the group can't go on: the subscription ends.
type GroupEnded struct {
	Conn   Conn
	Sub    uint32
	Code   wirev1.Code
	Reason string
}

func (GroupJoined) event() {}
func (Assigned) event()    {}
func (GroupEnded) event()  {}

// ErrTwoPositions refuses a Subscribe that names a topic's position twice: only one can be meant.
var ErrTwoPositions = code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "positions name a topic twice: name it once")

// CheckPosition says what is wrong with a position of a Subscribe.
func CheckPosition(filter string, p *wirev1.Position) error {
	if err := topic.Check(p.GetTopic()); err != nil {
		return code.New(wirev1.Code_CODE_BAD_TOPIC, err.Error())
	}
	if !topic.Match(filter, p.GetTopic()) {
		return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "a position's topic does not match the filter")
	}
	return nil
}
