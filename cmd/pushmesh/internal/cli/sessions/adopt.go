package sessions

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

type adopt struct {
	Client    string `placeholder:"ID" help:"Client id whose sessions the user gets."`
	User      string `placeholder:"USER" help:"User who gets them, by the name that the mesh knows (with the issuer's prefix)."`
	BackendID string `name:"backend-client" placeholder:"ID" help:"In place of --client: client id of a backend that consumed from routers with --open."`
	Backend   string `placeholder:"NAME" help:"With --backend-client: name of the backend in the file of --backends."`
	Session   string `placeholder:"NAME" help:"This session alone; all of the client by default."`
	As        string `placeholder:"NAME" help:"With --session: name that the session gets; it keeps its own by default."`
	File      string `placeholder:"FILE" help:"Do it for each line of a file, or of standard input (-): client,user or {\"client\": …, \"user\": …}."`
	DryRun    bool   `help:"Only say what would be done."`
	cmdline.RouterFlag
}

func (adopt) Help() string {
	return `A session of a client that has shown no token belongs to client:ID. Here a user gets it, with subscriptions, positions, what is not
ACKed, and dead letters. A connection that has it is closed with SESSION_TAKEN_OVER. Where the user has a session of that name, nothing
changes (ALREADY_EXISTS).

Lines of a file are CSV (client,user[,session[,as]]) or JSON objects with these names, one a line; empty lines, and a first line of
headings, are passed over. Lines that fail are told with their numbers, and the others are done. What was done is not done again: run the
command again for what failed, or after an interruption.

  pushmesh session adopt --client phone-7 --user ann
  pushmesh session adopt --client phone-7 --session inbox --user ann --as inbox-7
  pushmesh session adopt --file clients.csv --dry-run
  pushmesh session adopt --backend-client worker --session all --backend orders`
}

func (c *adopt) check() error {
	switch {
	case c.File != "" && c.Client+c.User+c.BackendID+c.Backend+c.Session+c.As != "":
		return cmdline.Usage("--file says which sessions: give no other flag that does")
	case c.File != "":
	case (c.Client == "") == (c.BackendID == ""):
		return cmdline.Usage("give --client and --user, or --backend-client and --backend, or --file")
	case (c.Client == "") != (c.User == "") || (c.BackendID == "") != (c.Backend == ""):
		return cmdline.Usage("--user goes with --client, and --backend with --backend-client")
	case c.As != "" && c.Session == "":
		return cmdline.Usage("--as needs --session")
	case c.As != "" && c.Backend != "":
		return cmdline.Usage("--as does not go with --backend, which says the name")
	}
	return nil
}

// Run gives sessions away.
func (c *adopt) Run(ctx context.Context, stdio cmdline.IO) error {
	if err := c.check(); err != nil {
		return err
	}
	var lines io.Reader
	switch c.File {
	case "":
	case "-":
		lines = stdio.In
	default:
		f, err := os.Open(c.File)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		lines = f
	}
	return withSessions(ctx, c.RouterFlag, func(ctx context.Context, api pushmeshv1.SessionServiceClient) error {
		a := adopter{api: api, dryRun: c.DryRun, stdio: stdio, slots: make(chan struct{}, adoptionsAtATime)}
		var err error
		if lines != nil {
			err = a.lines(ctx, lines)
		} else {
			a.begin(ctx, c.one())
		}
		a.work.Wait()
		return a.sum(err)
	})
}

// one is what flags say.
func (c *adopt) one() adoption {
	if c.Client != "" {
		return adoption{from: "client:" + c.Client, to: c.User, Session: c.Session, As: c.As}
	}
	from := "backend:" + c.BackendID
	return adoption{from: from, to: from, Session: c.Session, prefix: c.Backend + " "}
}

// adoption is a line of a file: sessions that get another owner.
type adoption struct {
	Client  string `json:"client"`
	User    string `json:"user"`
	Session string `json:"session"` // empty: all
	As      string `json:"as"`      // empty: the name stays

	line     int // 0: of none
	from, to string
	prefix   string // of names that sessions get
}

// parseAdoption of a line. A nil answer without an error says that there is nothing in it.
func parseAdoption(text string, line int) (*adoption, error) {
	if line == 1 {
		text = strings.TrimPrefix(text, "\ufeff") // as spreadsheets begin files
	}
	text = strings.TrimSpace(text)
	a := &adoption{}
	switch {
	case text == "":
		return nil, nil //nolint:nilnil // an empty line
	case text[0] == '{':
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(a); err != nil {
			return nil, fmt.Errorf("it is no JSON object with client, user, session and as: %w", err)
		}
		if d.More() {
			return nil, errors.New("there is more than one JSON object")
		}
	default:
		r := csv.NewReader(strings.NewReader(text))
		r.TrimLeadingSpace = true
		fields, err := r.Read()
		if err != nil {
			return nil, fmt.Errorf("it is no line of CSV: %w", err)
		}
		if len(fields) < 2 || len(fields) > 4 {
			return nil, fmt.Errorf("it has %d fields, and must have client,user or client,user,session or client,user,session,as", len(fields))
		}
		if line == 1 && fields[0] == "client" && fields[1] == "user" {
			return nil, nil //nolint:nilnil // headings
		}
		if slices.ContainsFunc(fields, func(f string) bool { return strings.TrimSpace(f) != f }) {
			return nil, errors.New("a name begins or ends with a space: take it away, or write a line of JSON if it is part of the name")
		}
		fields = append(fields, "", "")
		a.Client, a.User, a.Session, a.As = fields[0], fields[1], fields[2], fields[3]
	}
	switch {
	case a.Client == "" || a.User == "":
		return nil, errors.New("client and user must not be empty")
	case a.As != "" && a.Session == "":
		return nil, errors.New("as needs session")
	}
	a.line, a.from, a.to = line, "client:"+a.Client, a.User
	return a, nil
}

const (
	// adoptionsAtATime of one command.
	adoptionsAtATime = 16
	// adoptTries is how often a session is asked for, where trying again can help.
	adoptTries = 5
	// adoptPause lies between two tries where the answer does not say how long.
	adoptPause = 500 * time.Millisecond
	// maxAdoptionLine has four names of 255 bytes, however they are written.
	maxAdoptionLine = 16 << 10
)

// adopter does several adoptions at a time.
type adopter struct {
	api    pushmeshv1.SessionServiceClient
	dryRun bool
	stdio  cmdline.IO
	slots  chan struct{}
	work   sync.WaitGroup

	mu                           sync.Mutex // of the rest, and of what is printed
	adopted, before, none, fails int
}

// lines begins what each line says.
func (a *adopter) lines(ctx context.Context, in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 4<<10), maxAdoptionLine)
	n := 1
	for ; ctx.Err() == nil && lines.Scan(); n++ {
		switch one, err := parseAdoption(lines.Text(), n); {
		case err != nil:
			a.failed(&adoption{line: n}, "", err)
		case one != nil:
			a.begin(ctx, *one)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("line %d can't be read: %w", n, err)
	}
	return ctx.Err()
}

// begin waits for a place.
func (a *adopter) begin(ctx context.Context, one adoption) {
	a.slots <- struct{}{}
	a.work.Go(func() {
		defer func() { <-a.slots }()
		if err := a.adopt(ctx, &one); err != nil {
			a.failed(&one, one.Session, err)
		}
	})
}

// adopt one session, or all of a client. Where one of several fails the others are done.
func (a *adopter) adopt(ctx context.Context, one *adoption) error {
	if one.Session != "" {
		return a.session(ctx, one, one.Session)
	}
	var names []string
	err := a.patiently(ctx, func() error {
		names = nil
		return each(ctx, a.api, one.from, "", false, func(s *pushmeshv1.Session) (bool, error) {
			if one.prefix == "" || !strings.HasPrefix(s.GetName(), one.prefix) {
				names = append(names, s.GetName())
			}
			return true, nil
		})
	})
	if err != nil {
		return err
	}
	if len(names) == 0 {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.none++
		return nil
	}
	for _, name := range names {
		if err := a.session(ctx, one, name); err != nil {
			a.failed(one, name, err)
		}
	}
	return nil
}

func (a *adopter) session(ctx context.Context, one *adoption, name string) error {
	req := &pushmeshv1.AdoptRequest{User: one.from, Name: name, ToUser: one.to, ToName: one.As, DryRun: a.dryRun}
	if one.prefix != "" {
		req.ToName = one.prefix + name
	}
	var resp *pushmeshv1.AdoptResponse
	if err := a.patiently(ctx, func() (err error) {
		resp, err = a.api.Adopt(ctx, req)
		return err
	}); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if resp.GetAlready() {
		a.before++
	} else {
		a.adopted++
	}
	return nil
}

// patiently calls again where that can help.
func (a *adopter) patiently(ctx context.Context, call func() error) error {
	for tries := 1; ; tries++ {
		err := call()
		if err == nil || tries == adoptTries || !code.Retryable(code.Of(err)) {
			return err
		}
		pause := time.NewTimer(max(adoptPause, code.From(err).RetryAfter))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return err
		}
	}
}

// failed tells of one, or of one session of it.
func (a *adopter) failed(one *adoption, session string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fails++
	where := ""
	if one.line > 0 {
		where = fmt.Sprintf("line %d: ", one.line)
	}
	if one.from != "" {
		where += fmt.Sprintf("%q: ", one.from)
	}
	if session != "" {
		where += fmt.Sprintf("session %q: ", session)
	}
	fmt.Fprintln(a.stdio.Err, where+cmdline.Explain(err))
}

// sum says what was done; err is what ended it.
func (a *adopter) sum(err error) error {
	done := "adopted"
	if a.dryRun {
		done = "would be adopted"
	}
	fmt.Fprintf(a.stdio.Out, "%d %s, %d adopted before, %d clients without sessions, %d failed\n", a.adopted, done, a.before, a.none, a.fails)
	if err == nil && a.fails > 0 {
		return cmdline.ErrReported
	}
	return err
}
