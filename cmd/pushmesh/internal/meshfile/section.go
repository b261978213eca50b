package meshfile

import (
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/protoyaml"
	"github.com/pushmesh/pushmesh/internal/identity/backends"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/score"
	"github.com/pushmesh/pushmesh/internal/strictyaml"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// formats are those of model files, as --file-format names them.
var formats = map[string]pushmeshv1.ModelFormat{
	"lightgbm":       pushmeshv1.ModelFormat_MODEL_FORMAT_LIGHTGBM_TEXT,
	"xgboost-binary": pushmeshv1.ModelFormat_MODEL_FORMAT_XGBOOST_BINARY,
	"xgboost-json":   pushmeshv1.ModelFormat_MODEL_FORMAT_XGBOOST_JSON,
}

// text reads a value into one, and values a list.
func text(r *protoyaml.Reader, at string, f strictyaml.Field, into *string) {
	value, err := strictyaml.Scalar(f.Value)
	if err != nil {
		r.Fault(f.Line, "%s.%s: %w", at, f.Name, err)
	}
	*into = value
}

func values(r *protoyaml.Reader, at string, f strictyaml.Field, into *[]string) {
	all, err := strictyaml.Scalars(f.Value)
	if err != nil {
		r.Fault(f.Line, "%s.%s: %w", at, f.Name, err)
	}
	*into = all
}

func model(r *protoyaml.Reader, at string, of strictyaml.Field) Model {
	m := Model{Line: of.Line, Name: of.Name}
	for _, f := range r.Fields(at, of.Value) {
		switch f.Name {
		case "file":
			text(r, at, f, &m.Path)
		case "format":
			var name string
			text(r, at, f, &name)
			var known bool
			if m.Format, known = formats[name]; !known && name != "" {
				r.Fault(f.Line, "%s.format: %.60q must be one of lightgbm, xgboost-binary, xgboost-json", at, name)
			}
		case "columns":
			values(r, at, f, &m.Columns)
		case "comment":
			text(r, at, f, &m.Comment)
		default:
			r.Unknown(at, f, []string{"file", "format", "columns", "comment"})
		}
	}
	return m
}

func namespace(r *protoyaml.Reader, at string, of strictyaml.Field) Namespace {
	n := Namespace{of.Line, &pushmeshv1.Namespace{Prefix: of.Name, Policy: &pushmeshv1.Policy{}}}
	before := len(r.Faults)
	r.Lines = map[string]int{}
	r.Message(at, r.Fields(at, of.Value), n.Namespace.GetPolicy())
	if len(r.Faults) == before { // otherwise it is not what the file says
		err := policy.Check(n.Namespace, score.CheckNamespace, policy.CheckSecrets)
		for _, one := range each(err) {
			r.Fault(lineOf(one, r.Lines, of.Line), "%s: %w", at, one)
		}
	}
	r.Lines = nil
	return n
}

// teamFields are those of a team that a file has.
var teamFields = []string{"subscribe", "publish", "claim", "group", "members"}

func team(r *protoyaml.Reader, at string, of strictyaml.Field) Team {
	t := Team{Line: of.Line, Team: &pushmeshv1.Team{Name: of.Name}}
	var grants []strictyaml.Field
	for _, f := range r.Fields(at, of.Value) {
		if f.Name != "members" {
			grants = append(grants, f)
			continue
		}
		t.Managed = true
		values(r, at, f, &t.Members)
	}
	r.Message(at, grants, t.Team, teamFields...)
	return t
}

func backend(r *protoyaml.Reader, at string, of strictyaml.Field) Backend {
	b := Backend{Line: of.Line, Entry: backends.Entry{Name: of.Name}}
	for _, f := range r.Fields(at, of.Value) {
		switch f.Name {
		case "roles":
			values(r, at, f, &b.Entry.Roles)
		case "certificates":
			values(r, at, f, &b.Entry.Certificates)
		case "tokens":
			b.Entry.Tokens = tokens(r, at, f)
		case "limits":
			limits(r, at+".limits", f, &b.Entry.Limits)
		case "key":
			if f.Value.Tag != "!!bool" || f.Value.Decode(&b.Key) != nil {
				r.Fault(f.Line, "%s.key must be true or false: keys themselves are never in this file", at)
			}
		case "key_expires":
			var duration string
			text(r, at, f, &duration)
			d, err := cmdline.ParseDuration(duration)
			if err == nil && d <= 0 || err != nil && duration != "" {
				r.Fault(f.Line, "%s.key_expires: %.60q must be a duration above 0, like 90d", at, duration)
			}
			b.KeyExpires = d
		default:
			r.Unknown(at, f, []string{"roles", "certificates", "tokens", "limits", "key", "key_expires"})
		}
	}
	return b
}

func limits(r *protoyaml.Reader, at string, of strictyaml.Field, into *backends.Limits) {
	for _, f := range r.Fields(at, of.Value) {
		var number string
		text(r, at, f, &number)
		n, err := strconv.Atoi(number)
		if err != nil && number != "" {
			r.Fault(f.Line, "%s.%s: %.60q must be a whole number", at, f.Name, number)
		}
		switch f.Name {
		case "rate":
			into.Rate = n
		case "in_flight":
			into.InFlight = n
		default:
			r.Unknown(at, f, []string{"rate", "in_flight"})
		}
	}
}

func tokens(r *protoyaml.Reader, at string, of strictyaml.Field) (all []backends.TokenSubject) {
	if of.Value.Kind != yaml.SequenceNode {
		r.Fault(of.Line, "%s.tokens must be a list, like [{issuer: corp, sub: ci}]", at)
		return nil
	}
	for _, one := range of.Value.Content {
		var t backends.TokenSubject
		for _, f := range r.Fields(at+".tokens", one) {
			switch f.Name {
			case "issuer":
				text(r, at+".tokens", f, &t.Issuer)
			case "sub":
				text(r, at+".tokens", f, &t.Sub)
			default:
				r.Unknown(at+".tokens", f, []string{"issuer", "sub"})
			}
		}
		all = append(all, t)
	}
	return all
}

// Node is the team as the file has it.
func (t *Team) Node() *yaml.Node {
	n := protoyaml.Node(t.Team, "name", "version")
	if t.Managed {
		protoyaml.Set(n, "members", protoyaml.List(t.Members))
	}
	return n
}

// EntryNode is a backend as the file has it, without its keys.
func EntryNode(e backends.Entry) *yaml.Node {
	n := protoyaml.Map()
	list := func(name string, all []string) {
		if len(all) > 0 {
			protoyaml.Set(n, name, protoyaml.List(all))
		}
	}
	list("roles", e.Roles)
	list("certificates", e.Certificates)
	if len(e.Tokens) > 0 {
		all := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, t := range e.Tokens {
			one := protoyaml.Map()
			one.Style = yaml.FlowStyle
			protoyaml.Set(one, "issuer", protoyaml.Text(t.Issuer))
			protoyaml.Set(one, "sub", protoyaml.Text(t.Sub))
			all.Content = append(all.Content, one)
		}
		protoyaml.Set(n, "tokens", all)
	}
	if e.Limits != (backends.Limits{}) {
		m := protoyaml.Map()
		number := func(name string, v int) {
			if v != 0 {
				protoyaml.Set(m, name, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.Itoa(v)})
			}
		}
		number("rate", e.Limits.Rate)
		number("in_flight", e.Limits.InFlight)
		protoyaml.Set(n, "limits", m)
	}
	return n
}
