package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/console"
	"github.com/seed-028515a8/maestro/internal/wiring"
)

// attachName is the name of a client whose user gave no name.
const attachName = "maestro-attach"

type attachFlags struct {
	view      bool
	approve   bool
	take      bool
	session   string
	create    bool
	tokenFile string
	share     string // secret in the URL; it replaces tokenFile
	noHistory bool
	json      bool
	name      string
}

func attachCommand() *cobra.Command {
	var flags attachFlags
	cmd := &cobra.Command{
		Use:   "attach [SERVER]",
		Short: "Attach this terminal to a session",
		Long: `Attach shows the events of a session line by line and sends what you type. The server
is a URL, HOST:PORT, or a PORT on 127.0.0.1.

Lines while attached:
` + attachHelp + `

On a terminal the line that you type stays below the output. Its keys are those of a
shell: arrows, Ctrl-A, Ctrl-E, Ctrl-K, Ctrl-U and Ctrl-W edit it, up and down show
earlier lines, Alt-Enter begins another line of the same prompt, Ctrl-C clears it, and
Ctrl-Z stops the program. A paste is one prompt, however long. The prompt shows whether
the agent is working, a question is open, or the connection is lost. If a question
comes while you type, the line is set aside and comes back after the answer.

Attach begins with the last 2,000 entries of the session; /history shows all.

Attach shows the utility commands of clients: their output after "|", their error
output after "2|", and the command's id in front while several commands run. It does
not show file searches, reads and watches; --json shows everything.

If standard input is not a terminal, attach sends its lines one after the other. Each
line waits until the work of the line before is over or asks a question, which the line
then answers. At the first refused line attach exits and sends no more lines. Lines do
not answer a question that was open before the first line: they are refused until a
person has answered it or /interrupt has ended it. With --json, which shows questions,
lines do answer it. After the last line attach exits when the session has been quiet
for three seconds. If there was no line, it keeps following. The exit status is
1 if a line was refused or a question was left without an answer, and 3 if all lines
were accepted and one of their runs ended with an error.

An approval shows the whole request. Of more than 4,096 characters or 60 lines it shows
both ends, and /show shows all. Answer it with y, with n and a reason, or with a to
approve the same always in this session, where that is offered. If the agent has options
of its own, answer with the number of one. After y only a note in braces is allowed,
such as {"remember":"session"}; attach refuses other text and several lines. A refused
answer is in the history of the line.

Fill in a form field by field. Enter takes the default or leaves a field out. Quotes make
a text of a word such as "cancel". Instead of a field, these answer the whole form:
decline, cancel, a JSON object with all fields, or accept and such an object.

A URL may name the session with sessionId and create, like the URLs of the server. It may
be the link of a share, whose role attach then has. Other users of this machine can see
the link while attach runs: to hide it, write the text after #share= to a file for
--token-file.`,
		Args:          cobra.MaximumNArgs(1),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			server, err := flags.address(append(args, defaultListen)[0])
			if err == nil && flags.view && flags.take {
				err = errViewerTakes
			}
			if err != nil {
				return usage{err}
			}
			return runAttach(cmd, server, &flags)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&flags.view, "view", false, "watch only")
	f.BoolVar(&flags.approve, "approve", false, "watch, and answer approvals and user input, also while another client is in control")
	f.BoolVar(&flags.take, "take", false, "take control, also from another client")
	f.StringVar(&flags.session, "session", "", "session `ID`; default: the server's first session")
	f.BoolVar(&flags.create, "create", false, "create the session if it does not exist")
	f.StringVar(&flags.tokenFile, "token-file", tokenFile(defaultStateRoot()), "`FILE` with the server's token")
	f.BoolVar(&flags.noHistory, "no-history", false, "start with the current state and hide earlier events")
	f.BoolVar(&flags.json, "json", false, "print each update as a line of JSON")
	f.StringVar(&flags.name, "name", attachName, "name that others see")
	cmd.MarkFlagsMutuallyExclusive("approve", "view")
	cmd.MarkFlagsMutuallyExclusive("approve", "take")
	return cmd
}

// sharePart is the part of a link that precedes the secret of a share. Browsers do not send
// it to servers.
const sharePart = "#share="

// address returns the URL of the server in text. It takes the session from the query, and
// the secret of a share from the fragment.
// The default scheme is http, and a port alone is on loopback.
func (f *attachFlags) address(text string) (*url.URL, error) {
	if isPort(text) {
		text = net.JoinHostPort("127.0.0.1", text)
	}
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, err
	}
	switch {
	case !slices.Contains([]string{"ws", "wss", "http", "https"}, u.Scheme):
		return nil, fmt.Errorf("server address %q: want ws://, wss://, http:// or https://", text)
	case u.Host == "":
		return nil, fmt.Errorf("server address %q: no host", text)
	case !mayServe(u.Port()):
		return nil, fmt.Errorf("server address %q: want a port from 1 to 65535", text)
	case strings.Contains(u.Path, "/api/headless") && !strings.HasSuffix(u.Path, "/ws"):
		return nil, fmt.Errorf("server address %q: want %s://%s, and --session ID for one of its sessions", text, u.Scheme, u.Host)
	}
	for key, values := range u.Query() {
		switch {
		case key == "sessionId" && f.session == "":
			f.session = values[0]
		case key == "create" && (values[0] == "1" || values[0] == "true"):
			f.create = true
		default:
			return nil, fmt.Errorf("%s=%s in the URL: attach takes only sessionId and create=1 from there, and --session in its place", key, values[0])
		}
	}
	if secret, ok := strings.CutPrefix(u.Fragment, sharePart[1:]); ok {
		f.share = secret
	}
	u.RawQuery, u.Fragment = "", ""
	return u, nil
}

// token returns the path of the token file. It is empty if the default file does not
// exist.
func (f *attachFlags) token() (string, error) {
	if f.tokenFile == "" || f.share != "" {
		return "", nil
	}
	err := checkToken(f.tokenFile)
	if f.tokenFile == tokenFile(defaultStateRoot()) && errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return f.tokenFile, err
}

// shownHistory is the number of earlier entries that attach shows. A million entries
// would take minutes.
const shownHistory = 2000

func (f *attachFlags) options(tokenFile string) []client.Option {
	hello := contracts.Hello{
		Role:         contracts.RoleController,
		ClientInfo:   &contracts.ClientInfo{Name: f.name, Version: wiring.Version()},
		Capabilities: &contracts.Capabilities{RawAgentEvents: true, People: true, ServerRequests: contracts.RequestTypes()},
	}
	takeover := contracts.TakeoverLater
	if f.name != attachName {
		hello.DisplayName = f.name
	}
	switch {
	case f.view:
		hello.Role, hello.Capabilities.ServerRequests, takeover = contracts.RoleViewer, nil, contracts.TakeoverRefuse
	case f.approve:
		hello.Role, takeover = contracts.RoleApprover, contracts.TakeoverRefuse
		hello.Capabilities.ServerRequests = []contracts.RequestType{contracts.RequestApproval, contracts.RequestUserInput}
	case f.take:
		takeover = contracts.TakeoverForce
	}
	opts := []client.Option{client.WithHello(hello), client.WithTakeover(takeover), client.WithSession(f.session, f.create)}
	switch {
	case f.noHistory:
	case f.json:
		opts = append(opts, client.WithHistory())
	default:
		opts = append(opts, client.WithTail(shownHistory))
	}
	return append(opts, f.credential(tokenFile))
}

// credential returns the option that sends the secret of a share, or the token in a file.
func (f *attachFlags) credential(tokenFile string) client.Option {
	if f.share == "" && tokenFile != "" {
		return client.WithTokenFile(tokenFile)
	}
	return client.WithToken(f.share)
}

// pageOf returns the page of a server that the links of its shares open.
func pageOf(server *url.URL) string {
	u := *server
	u.Scheme = strings.Replace(u.Scheme, "ws", "http", 1)
	u.Path = strings.TrimSuffix(u.Path, "/api/headless/ws")
	return u.JoinPath("/").String()
}

// runAttach attaches and follows the session until the user leaves or the
// server ends it.
func runAttach(cmd *cobra.Command, server *url.URL, flags *attachFlags) error {
	token, err := flags.token()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	// The process handles signals until it ends: a terminal that closes may send SIGHUP
	// twice, and the second one must not end the process before the client has detached.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, leaving()...)
	signal.Notify(signals, console.Signals...)

	c, err := flags.dial(ctx, cmd.ErrOrStderr(), server, flags.options(token))
	if flags.lower(err) {
		c, err = flags.dial(ctx, cmd.ErrOrStderr(), server, flags.options(token))
	}
	if err != nil {
		return flags.explain(err, server.Host, token)
	}
	defer c.Close(false) // detaches, so that a closed terminal does not keep control
	mode, err := flags.terminal(cmd.InOrStdin(), cmd.OutOrStdout())
	if err != nil {
		return err
	}
	var size func() (int, int)
	if mode != nil {
		defer mode.Restore()
		size = mode.Size
	}
	a := newAttachment(c, cmd.OutOrStdout(), cmd.ErrOrStderr(), flags, size)
	a.mode, a.skipped = mode, c.Skipped()
	if a.server, err = client.NewServer(server.String(), flags.credential(token)); err != nil {
		return err
	}
	a.shareURL = pageOf(server)
	a.redial = func(ctx context.Context) (follower, error) {
		viewer := *flags
		viewer.view = true
		return client.Dial(ctx, server.String(), append(viewer.options(token), client.WithHistory(), client.WithoutReconnect())...)
	}
	a.typed = console.IsTerminal(cmd.InOrStdin())
	return flags.explain(a.run(ctx, cmd.InOrStdin(), signals), server.Host, token)
}

// openingTakesLong is the time after which attach says that it waits for the server.
const openingTakesLong = 2 * time.Second

// dial attaches. Ctrl-C ends it.
func (f *attachFlags) dial(ctx context.Context, errOut io.Writer, server *url.URL, opts []client.Option) (*client.Client, error) {
	ctx, stop := signal.NotifyContext(ctx, leaving()...)
	defer stop()
	long := time.AfterFunc(openingTakesLong, func() {
		_, _ = fmt.Fprintf(errOut, "-- waiting for %s: an agent may take a minute to start\n", server.Host)
	})
	defer long.Stop()
	c, err := client.Dial(ctx, server.String(), opts...)
	if err != nil && ctx.Err() != nil {
		return nil, exit(exitFailure)
	}
	return c, err
}

// leaving returns the signals that end attach, without a SIGHUP that nohup ignores.
func leaving() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

// terminal switches the terminal to raw mode. It returns nil if input or output is not
// a terminal.
func (f *attachFlags) terminal(in io.Reader, out io.Writer) (*console.Mode, error) {
	if f.json || os.Getenv("TERM") == "dumb" || !console.IsTerminal(in) || !console.IsTerminal(out) {
		return nil, nil
	}
	return console.Open(in.(*os.File), out.(*os.File))
}
