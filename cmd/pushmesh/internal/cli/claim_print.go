package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// shownClaim is a state as JSON prints it.
type shownClaim struct {
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

func showClaim(st *wirev1.ClaimState) shownClaim {
	s := shownClaim{
		Resource: st.GetResource(), State: stateName(st), Token: st.GetToken(), Position: st.GetPosition(), ExpiresAt: showTime(st.GetExpiresAt()),
		ExpiresInMs: st.GetExpiresInMs(), Holder: st.GetHolder(), Holding: st.GetHolding(), Waiting: st.GetWaiting(), PollAfterMs: st.GetPollAfterMs(),
	}
	if st.GetCode() != wirev1.Code_CODE_OK {
		s.Code = codeName(st.GetCode())
	}
	return s
}

func stateName(st *wirev1.ClaimState) string {
	return strings.TrimPrefix(st.GetState().String(), "STATE_")
}

// printState prints one line: the state and what there is to say of it, or JSON.
func (f formatFlag) printState(w io.Writer, st *wirev1.ClaimState) error {
	s := showClaim(st)
	if f.Format == "json" {
		return writeJSON(w, s)
	}
	_, err := fmt.Fprintln(w, s.text())
	return err
}

func (s *shownClaim) text() string {
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

// shownPlace is a place as JSON prints it.
type shownPlace struct {
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

func showPlace(p *pushmeshv1.ClaimPlace) shownPlace {
	return shownPlace{
		Resource: p.GetResource(), Owner: p.GetOwner(), Token: p.GetToken(), Position: p.GetPosition(), Priority: p.GetPriority(),
		JoinedAt: showTime(p.GetJoinedAt()), GrantedAt: showTime(p.GetGrantedAt()), ExpiresAt: showTime(p.GetExpiresAt()), Offered: p.GetOffered(), Node: p.GetNode(),
	}
}

// placePrinter prints a table, or JSON line by line.
type placePrinter struct {
	json  io.Writer // nil: a table
	table *tabwriter.Writer
}

func newPlacePrinter(w io.Writer, f formatFlag) *placePrinter {
	if f.Format == "json" {
		return &placePrinter{json: w}
	}
	p := &placePrinter{table: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	fmt.Fprintln(p.table, "RESOURCE\tOWNER\tPLACE\tTOKEN\tPRIORITY\tSINCE\tENDS\tNODE")
	return p
}

func (p *placePrinter) print(place *pushmeshv1.ClaimPlace) error {
	s := showPlace(place)
	if p.json != nil {
		return writeJSON(p.json, s)
	}
	where, since, token := "holds", s.GrantedAt, strconv.FormatUint(s.Token, 10)
	switch {
	case s.Token == 0:
		where, since, token = strconv.FormatUint(uint64(s.Position), 10), s.JoinedAt, "-"
	case s.Offered:
		where = "offered"
	}
	_, err := fmt.Fprintf(p.table, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", s.Resource, s.Owner, where, token, s.Priority, since, orDash(s.ExpiresAt), orDash(s.Node))
	return err
}

func (p *placePrinter) flush() error {
	if p.table == nil {
		return nil
	}
	return p.table.Flush()
}
