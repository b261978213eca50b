// Package cli is the grammar of the pushmesh command and what each subcommand does.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cli/apply"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cli/auth"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cli/ca"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cli/claims"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cli/config"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cli/contexts"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cli/develop"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cli/dlq"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cli/kept"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cli/keys"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cli/namespaces"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cli/operate"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cli/presence"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cli/publish"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cli/ranking"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cli/sessions"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cli/shell"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cli/subscribe"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cli/teams"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/tiers"
	"github.com/pushmesh/pushmesh/internal/settings"
)

const description = `Deliver messages from backends to very many connected clients.

"pushmesh store", "router", "edge" and "compute" run one node of a tier; each has a --help of its own.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 timeout (sub --count not reached within --timeout),
4 the claim is not held (claim).
Addresses come from --router and --edge, from PUSHMESH_ROUTER and PUSHMESH_EDGE, or from a context
(pushmesh context --help); the flags of TLS from PUSHMESH_TLS, PUSHMESH_TLS_CA, PUSHMESH_TLS_SERVER_NAME,
PUSHMESH_TLS_CERT and PUSHMESH_TLS_KEY.`

// grammar is every subcommand. Its tags are the help texts.
type grammar struct {
	contexts.Flag
	Dev        develop.Dev        `cmd:"" help:"Run a whole mesh in this process: all four tiers, NATS and a database."`
	Pub        publish.Command    `cmd:"" help:"Publish a message, or one message for each line of the input."`
	Cancel     publish.Cancel     `cmd:"" help:"Withdraw scheduled messages."`
	Sub        subscribe.Command  `cmd:"" help:"Subscribe, and print each message that arrives."`
	History    subscribe.History  `cmd:"" help:"Print the messages in a durable topic's log."`
	Claim      claims.Command     `cmd:"" help:"Claim resources, wait in line for them, and run commands while holding them."`
	Apply      apply.Command      `cmd:"" help:"Make of a mesh what a file says: models, namespaces, teams and backends."`
	Auth       auth.Command       `cmd:"" help:"Explain tokens, and what their users may do."`
	CA         ca.Command         `cmd:"" name:"ca" help:"Make certificates for the nodes of a mesh, their public ports and backends."`
	Key        keys.Command       `cmd:"" help:"Make, list and revoke the API keys of backends."`
	Config     config.Command     `cmd:"" help:"Check files of settings of nodes, and print what comes of them."`
	Context    contexts.Command   `cmd:"" help:"Keep how to connect to meshes under names, and choose one."`
	Namespace  namespaces.Command `cmd:"" help:"Show and change the policies of namespaces (topic prefixes)."`
	Disconnect operate.Disconnect `cmd:"" help:"Close the connections of a client or a user in the whole mesh."`
	Dlq        dlq.Command        `cmd:"" help:"Show, replay and discard dead letters: messages that sessions or groups gave up."`
	Doctor     operate.Doctor     `cmd:"" help:"Examine a mesh from outside, and advise what to do."`
	Kept       kept.Command       `cmd:"" help:"Show and delete the last messages that topics keep."`
	Presence   presence.Command   `cmd:"" help:"Show who is subscribed to topics, and who joins and leaves."`
	Events     subscribe.Events   `cmd:"" help:"Print events of the mesh: connects, disconnects, subscriptions, dead letters."`
	Model      ranking.Model      `cmd:"" help:"Store models for ranking, and roll back a new version."`
	Rank       ranking.Rank       `cmd:"" help:"Rank candidates from a file, and print the best ones with their scores."`
	Rebalance  operate.Rebalance  `cmd:"" help:"Have an edge send a share of its connections to the other edges."`
	Replay     develop.Replay     `cmd:"" help:"Play a recorded chat through a mesh and check every delivery."`
	Mesh       develop.Mesh       `cmd:"" help:"Run a mesh of separate processes on loopback (for development)."`
	Health     operate.Health     `cmd:"" help:"Check a process: exit code 0 if it is ready."`
	Session    sessions.Command   `cmd:"" help:"Show and delete durable sessions, and change the profiles that messages are ranked for."`
	Shard      operate.Shard      `cmd:"" help:"Move shards between the databases of a mesh."`
	Store      operate.Store      `cmd:"" help:"Have stores go on with a database that was restored or promoted."`
	Team       teams.Command      `cmd:"" help:"Grant users something beside their tokens, in teams."`
	Top        operate.Top        `cmd:"" help:"Show the nodes of a mesh with connections, rates, latencies and queues, and refresh."`
	Version    operate.Version    `cmd:"" help:"Print the version."`
	Completion shell.Completion   `cmd:"" help:"Print a script that completes commands, flags and values in a shell."`

	CompleteWords shell.CompleteWords `cmd:"" hidden:""`
	Manual        shell.Manual        `cmd:"" hidden:""`
}

// Main runs the command that args name and returns the exit code of the process.
func Main(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	if len(args) > 0 && !tiers.Command(args) {
		// It has signals, flags and an environment of its own.
		if node := tiers.Named(args[0]); node != nil {
			return node(ctx, args[1:])
		}
	}
	err := run(ctx, args, cmdline.IO{In: in, Out: out, Err: errOut})
	if err != nil && !errors.Is(err, settings.ErrHelp) && !errors.Is(err, cmdline.ErrReported) {
		fmt.Fprintln(errOut, "pushmesh: "+cmdline.Explain(err))
	}
	return cmdline.ExitCode(err)
}

func run(ctx context.Context, args []string, stdio cmdline.IO) error {
	helped := false
	var g grammar
	fromContext := contexts.NewResolver()
	parser, err := kong.New(&g, append(cmdline.Mappers(),
		kong.Name("pushmesh"), kong.Description(description),
		kong.Writers(stdio.Out, stdio.Err), kong.Exit(func(int) { helped = true }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}),
		kong.UsageOnError(), kong.Resolvers(fromContext))...)
	if err != nil {
		return fmt.Errorf("grammar: %w", err)
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	if err := readable(args); err != nil {
		return &settings.UsageError{Err: err}
	}
	command, err := parser.Parse(args)
	if helped {
		return settings.ErrHelp
	}
	if err != nil {
		return &settings.UsageError{Err: misread(err)}
	}
	if err := fromContext.Err(command); err != nil {
		return err
	}
	ctx, release := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer release()
	context.AfterFunc(ctx, release) // a second signal ends the process at once
	command.BindTo(ctx, (*context.Context)(nil))
	return command.Run(stdio)
}

// misread is what the parser found wrong, for people.
func misread(err error) error {
	var parse *kong.ParseError
	if word, found := strings.CutPrefix(err.Error(), "unexpected argument "); found && errors.As(err, &parse) {
		if at := parse.Context.Selected(); at == nil || !at.Leaf() {
			word, near, _ := strings.Cut(word, ", ")
			if near == "" {
				near = "pushmesh --help lists them"
			}
			return fmt.Errorf("there is no command %q: %s", word, near)
		}
	}
	return fmt.Errorf("%w (pushmesh COMMAND --help says more)", err)
}

// readable refuses an argument that is not UTF-8: the parser would replace its bytes, and something
// else than what was given would be published.
func readable(args []string) error {
	for i, arg := range args {
		if !utf8.ValidString(arg) {
			return fmt.Errorf("argument %d, %q, is not UTF-8: binary data is published with pub --file", i+1, arg)
		}
	}
	return nil
}
