package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/show"
	"github.com/seed-028515a8/maestro/internal/wiring"
)

// shareFlags are those of all commands about shares.
type shareFlags struct {
	attachFlags // session and tokenFile
	server      *url.URL
}

func shareCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "share", Short: "Make, list and revoke links to one session", Args: cobra.NoArgs,
		Long: `A share lets its holder watch or control one session, or answer its questions, until it
expires or is revoked.
The server is a URL, HOST:PORT, or a PORT on 127.0.0.1.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(createShareCommand(), listSharesCommand(), revokeShareCommand())
	return cmd
}

// register adds the flags, and the server as the last argument.
func (f *shareFlags) register(cmd *cobra.Command, run func(ctx context.Context, out io.Writer, args []string) error) {
	own := strings.Count(cmd.Use, " ") - strings.Count(cmd.Use, "[")
	cmd.Args = cobra.MaximumNArgs(own + 1)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if len(args) < own {
			return usage{fmt.Errorf("too few arguments: want %s", cmd.UseLine())}
		}
		if len(args) == 2 && shareID.MatchString(args[1]) { // the server first, as with other commands
			slices.Reverse(args)
		}
		if f.server, err = f.address(append(args[own:], defaultListen)[0]); err != nil {
			return usage{err}
		}
		if f.share != "" {
			return usage{errShareOfShare}
		}
		return run(cmd.Context(), cmd.OutOrStdout(), args[:own])
	}
	cmd.Flags().StringVar(&f.session, "session", "", "session `ID`; default: the server's first session")
	cmd.Flags().StringVar(&f.tokenFile, "token-file", tokenFile(defaultStateRoot()), "`FILE` with the server's token")
}

var shareID = regexp.MustCompile(`^[0-9a-f]{24}$`)

func (f *shareFlags) id() string { return cmp.Or(f.session, wiring.FirstSession) }

func createShareCommand() *cobra.Command {
	var flags shareFlags
	var req struct{ role, label, page string }
	expires := expiry(24 * time.Hour)
	cmd := &cobra.Command{
		Use: "create [URL]", Short: "Make a link to a session",
		Long: `Create prints a link. The secret is in the fragment of the link, after #share=. Browsers
do not send the fragment to servers. The server does not show the secret again.`,
	}
	cmd.PreRunE = func(*cobra.Command, []string) error {
		switch contracts.Role(req.role) {
		case contracts.RoleViewer, contracts.RoleApprover, contracts.RoleController:
		default:
			return usage{fmt.Errorf("--role %q: want viewer, approver or controller", req.role)}
		}
		if err := expires.check(); err != nil {
			return usage{fmt.Errorf("--expires: %w", err)}
		}
		return nil
	}
	flags.register(cmd, func(ctx context.Context, out io.Writer, _ []string) error {
		body := contracts.ShareRequest{
			Role: contracts.Role(req.role), Label: req.label, ExpiresInSeconds: expires.seconds(),
		}
		return flags.ask(ctx, func(ctx context.Context, s *client.Server) error {
			made, err := s.CreateShare(ctx, flags.id(), body)
			if err == nil {
				_, err = fmt.Fprintf(out, "share %s of session %s, %s, until %s\n%s%s\n", made.ShareID, made.SessionID,
					made.Role, made.ExpiresAt, cmp.Or(req.page, pageOf(flags.server))+sharePart, made.Token)
			}
			return err
		})
	})
	cmd.Flags().StringVar(&req.role, "role", string(contracts.RoleViewer),
		"what the holder may do: viewer, approver or controller")
	cmd.Flags().StringVar(&req.label, "label", "", "text that the list shows, of at most 64 bytes")
	cmd.Flags().Var(&expires, "expires", "time until the share ends, such as 90m, 8h or 7d; 30d at most")
	cmd.Flags().StringVar(&req.page, "page", "", "`URL` of the page that the link opens; default: the server's")
	return cmd
}

// An expiry is the time until a share ends: a duration of Go, or a number of days and d.
type expiry time.Duration

// String implements [pflag.Value].
func (e *expiry) String() string { return time.Duration(*e).String() }

// Type implements [pflag.Value].
func (*expiry) Type() string { return "duration" }

// Set implements [pflag.Value].
func (e *expiry) Set(text string) error {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		*e = expiry(time.Duration(n) * 24 * time.Hour)
		return err
	}
	d, err := time.ParseDuration(text)
	*e = expiry(d)
	return err
}

// check refuses what the server would refuse.
func (e *expiry) check() error {
	if d := time.Duration(*e); d < time.Second || d > 30*24*time.Hour {
		return errors.New("want a time from 1s to 30d")
	}
	return nil
}

func (e *expiry) seconds() *int64 { return new(int64(time.Duration(*e) / time.Second)) }

func listSharesCommand() *cobra.Command {
	var flags shareFlags
	cmd := &cobra.Command{Use: "list [URL]", Short: "List the shares of a session and their use"}
	flags.register(cmd, func(ctx context.Context, out io.Writer, _ []string) error {
		var list *contracts.ShareList
		err := flags.ask(ctx, func(ctx context.Context, s *client.Server) (err error) {
			list, err = s.Shares(ctx, flags.id())
			return err
		})
		if err != nil {
			return err
		}
		rows := [][]string{{"SHARE", "ROLE", "LABEL", "EXPIRES", "USES", "LAST USED"}}
		for _, s := range list.Shares {
			rows = append(rows, []string{s.ShareID, string(s.Role), show.InLine(s.Label, show.MaxArgs),
				s.ExpiresAt, fmt.Sprint(s.Uses), strings.TrimSpace(s.LastUsedAt + " " + s.LastUsedFrom)})
		}
		return writeTable(out, rows)
	})
	return cmd
}

func revokeShareCommand() *cobra.Command {
	var flags shareFlags
	cmd := &cobra.Command{Use: "revoke SHARE [URL]", Short: "Revoke a share and end its connections",
		Long: "Revoke ends a share and its connections. SHARE is the first column of maestro share list.\nThe two arguments may come in either order."}
	flags.register(cmd, func(ctx context.Context, out io.Writer, args []string) error {
		return flags.ask(ctx, func(ctx context.Context, s *client.Server) error {
			err := s.RevokeShare(ctx, flags.id(), args[0])
			if err == nil {
				_, err = fmt.Fprintf(out, "share %s is revoked\n", args[0])
			}
			return err
		})
	})
	return cmd
}

var errShareOfShare = errors.New("a share cannot make, list or revoke shares: leave #share= out of the URL")

// ask calls do with the server and a time limit.
func (f *shareFlags) ask(ctx context.Context, do func(context.Context, *client.Server) error) error {
	token, err := f.attachFlags.token()
	if err != nil {
		return err
	}
	s, err := client.NewServer(f.server.String(), f.credential(token))
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, serverPatience)
	defer stop()
	err = do(ctx, s)
	if refused, ok := errors.AsType[*contracts.Error](err); ok && refused.Code != contracts.CodeUnauthenticated {
		return errors.New(show.OneLine(refused.Message, show.MaxArgs))
	}
	return f.explain(err, f.server.Host, token)
}
