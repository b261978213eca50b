package audit

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Bounds of a record's texts, in bytes.
const (
	maxAbout   = 600
	maxMessage = 1 << 10
	maxName    = 300
)

// Record is one change. Docs: api.md, "Audit".
type Record struct {
	Time time.Time `json:"time"`
	// ID is the record's own: one that comes twice is one.
	ID string `json:"id"`
	// Router wrote it. Number counts the records of one run of it, from 1: one that is missing was
	// lost on its way to $audit, and is in the router's log.
	Router string `json:"router"`
	Run    string `json:"run"`
	Number uint64 `json:"number"`
	// Who changed it, by what that was proven, and from where.
	Who     string `json:"who"`
	Proof   string `json:"proof"`
	Address string `json:"address"`
	// Call is the RPC, as SERVICE/CALL, and About what it was about.
	Call  string `json:"call"`
	About string `json:"about"`
	// Before and After are JSON; null: nothing was, or is, there. Empty: the call does not say.
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
	// Outcome is the name of a code, and Message what the caller was told with it. Other than OK it
	// may have been done all the same, or a part of it.
	Outcome string `json:"outcome"`
	Message string `json:"message,omitempty"`
}

// api is what the names of all services begin with.
const api = "pushmesh.v1."

// topic that a record is published to.
func (r *Record) topic() string { return policy.Audit + "/" + r.Call }

// End says what came of the change.
func (r *Record) End(err error) {
	r.Outcome = code.Name(wirev1.Code_CODE_OK)
	if why := code.From(err); why != nil {
		r.Outcome, r.Message = code.Name(why.Code), why.Message
	}
}

// bound cuts what callers choose.
func (r *Record) bound() {
	r.Call = strings.TrimPrefix(r.Call, api)
	r.Who, r.Proof, r.About = Cut(r.Who, maxName), Cut(r.Proof, maxName), Cut(r.About, maxAbout)
	r.Message = Cut(r.Message, maxMessage)
}

// log writes the record's line whatever the log's level is: it is no matter of how much is told.
func (r *Record) log(to *slog.Logger) {
	level := slog.LevelInfo
	if r.Outcome != code.Name(wirev1.Code_CODE_OK) {
		level = slog.LevelWarn
	}
	line := slog.NewRecord(time.Now(), level, "audit", 0)
	line.AddAttrs(
		slog.String("id", r.ID), slog.Uint64("number", r.Number), slog.String("who", r.Who), slog.String("proof", r.Proof), slog.String("address", r.Address),
		slog.String("call", r.Call), slog.String("about", r.About),
	)
	if len(r.Before) > 0 {
		line.AddAttrs(slog.String("before", string(r.Before)))
	}
	if len(r.After) > 0 {
		line.AddAttrs(slog.String("after", string(r.After)))
	}
	line.AddAttrs(slog.String("outcome", r.Outcome))
	if r.Message != "" {
		line.AddAttrs(slog.String("message", r.Message))
	}
	_ = to.Handler().Handle(context.Background(), line) // as slog itself does
}
