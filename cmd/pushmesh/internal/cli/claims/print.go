package claims

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// State is a state as JSON prints it.
type State struct {
	Resource    string `json:"resource"`
	State       string `json:"state"`
	Token       uint64 `json:"token,omitempty"`
	Position    uint32 `json:"position,omitempty"`
	ExpiresAt   string `json:"expires_at,omitempty"`
	ExpiresInMs uint32 `json:"expires_in_ms,omitempty"`
	Holder      string `json:"holder,omitempty"`
	Holding     uint32 `json:"holding"`
	Waiting     uint32 `json:"waiting"`
	PollAfterMs uint32 `json:"poll_after_ms,omitempty"`
	Code        string `json:"code,omitempty"`
}

func showClaim(st *wirev1.ClaimState) State {
	s := State{
		Resource: st.GetResource(), State: stateName(st), Token: st.GetToken(), Position: st.GetPosition(), ExpiresAt: cmdline.ShowTime(st.GetExpiresAt()),
		ExpiresInMs: st.GetExpiresInMs(), Holder: st.GetHolder(), Holding: st.GetHolding(), Waiting: st.GetWaiting(), PollAfterMs: st.GetPollAfterMs(),
	}
	if st.GetCode() != wirev1.Code_CODE_OK {
		s.Code = code.Name(st.GetCode())
	}
	return s
}

func stateName(st *wirev1.ClaimState) string {
	return strings.TrimPrefix(st.GetState().String(), "STATE_")
}

// printState prints one line: the state and what there is to say of it, or JSON.
func (a *resourceArg) printState(w io.Writer, st *wirev1.ClaimState) error {
	s := showClaim(st)
	if a.Format == "json" {
		return cmdline.WriteJSON(w, s)
	}
	_, err := fmt.Fprintln(w, s.text())
	return err
}

func (s *State) text() string {
	parts := []string{s.State}
	add := func(name, value string) {
		if value != "" && value != "0" {
			parts = append(parts, name+"="+value)
		}
	}
	add("token", strconv.FormatUint(s.Token, 10))
	add("position", strconv.FormatUint(uint64(s.Position), 10))
	add("holder", s.Holder)
	add("expires", s.ExpiresAt)
	add("code", s.Code)
	if s.State == "QUEUED" || s.State == "HELD_BY_OTHER" {
		add("waiting", strconv.FormatUint(uint64(s.Waiting), 10))
	}
	return strings.Join(parts, "\t")
}

// Place is a place as JSON prints it.
type Place struct {
	Resource  string `json:"resource"`
	Owner     string `json:"owner"`
	Token     uint64 `json:"token,omitempty"`
	Position  uint32 `json:"position,omitempty"`
	Priority  uint32 `json:"priority,omitempty"`
	JoinedAt  string `json:"joined_at"`
	GrantedAt string `json:"granted_at,omitempty"`
	ExpiresAt string `json:"expires_at,omitempty"`
	Offered   bool   `json:"offered,omitempty"`
	Node      string `json:"node,omitempty"`
}

func showPlace(p *pushmeshv1.ClaimPlace) Place {
	return Place{
		Resource: p.GetResource(), Owner: p.GetOwner(), Token: p.GetToken(), Position: p.GetPosition(), Priority: p.GetPriority(),
		JoinedAt: cmdline.ShowTime(p.GetJoinedAt()), GrantedAt: cmdline.ShowTime(p.GetGrantedAt()), ExpiresAt: cmdline.ShowTime(p.GetExpiresAt()), Offered: p.GetOffered(), Node: p.GetNode(),
	}
}

// printPlace prints a place as a row.
func printPlace(t *cmdline.Table, place *pushmeshv1.ClaimPlace) error {
	s := showPlace(place)
	where, since, token := "holds", s.GrantedAt, strconv.FormatUint(s.Token, 10)
	switch {
	case s.Token == 0:
		where, since, token = strconv.FormatUint(uint64(s.Position), 10), s.JoinedAt, "-"
	case s.Offered:
		where = "offered"
	}
	return t.Row(s, s.Resource, s.Owner, where, token, s.Priority, since, cmdline.OrDash(s.ExpiresAt), cmdline.OrDash(s.Node))
}
