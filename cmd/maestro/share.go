package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/show"
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
		if f.server, err = f.address(append(args[own:], defaultListen)[0]); err != nil {
			return usage{err}
		}
		if f.share != "" {
			return usage{errShareOfShare}
		}
		f.session = cmp.Or(f.session, firstSession)
		return run(cmd.Context(), cmd.OutOrStdout(), args[:own])
	}
	cmd.Flags().StringVar(&f.session, "session", "", "session `ID`; default: the server's first session")
	cmd.Flags().StringVar(&f.tokenFile, "token-file", tokenFile(defaultStateRoot()), "`FILE` with the server's token")
}

func createShareCommand() *cobra.Command {
	var flags shareFlags
	var req struct{ role, label, page string }
	var expires time.Duration
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
		if expires < time.Second || expires > 720*time.Hour {
			return usage{fmt.Errorf("--expires %s: want a time from 1s to 720h", expires)}
		}
		return nil
	}
	flags.register(cmd, func(ctx context.Context, out io.Writer, _ []string) error {
		seconds := int64(expires / time.Second)
		body := &contracts.ShareRequest{Role: contracts.Role(req.role), Label: req.label, ExpiresInSeconds: &seconds}
		var made contracts.ShareAnswer
		if err := flags.call(ctx, http.MethodPost, "", body, &made); err != nil {
			return err
		}
		page := cmp.Or(req.page, flags.server.JoinPath("/").String())
		_, err := fmt.Fprintf(out, "share %s of session %s, %s, until %s\n%s%s\n", made.ShareID, made.SessionID,
			made.Role, made.ExpiresAt, page+sharePart, made.Token)
		return err
	})
	cmd.Flags().StringVar(&req.role, "role", string(contracts.RoleViewer),
		"what the holder may do: viewer, approver or controller")
	cmd.Flags().StringVar(&req.label, "label", "", "text that the list shows, of at most 64 bytes")
	cmd.Flags().DurationVar(&expires, "expires", 24*time.Hour, "time until the share ends, 720h at most")
	cmd.Flags().StringVar(&req.page, "page", "", "`URL` of the page that the link opens; default: the server's")
	return cmd
}

func listSharesCommand() *cobra.Command {
	var flags shareFlags
	cmd := &cobra.Command{Use: "list [URL]", Short: "List the shares of a session and their use"}
	flags.register(cmd, func(ctx context.Context, out io.Writer, _ []string) error {
		var list contracts.ShareList
		if err := flags.call(ctx, http.MethodGet, "", nil, &list); err != nil {
			return err
		}
		t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(t, "SHARE\tROLE\tLABEL\tEXPIRES\tUSES\tLAST USED") // Flush returns the error
		for _, s := range list.Shares {
			_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\n", s.ShareID, s.Role, show.InLine(s.Label, show.MaxArgs),
				s.ExpiresAt, s.Uses, strings.TrimSpace(s.LastUsedAt+" "+s.LastUsedFrom))
		}
		return t.Flush()
	})
	return cmd
}

func revokeShareCommand() *cobra.Command {
	var flags shareFlags
	cmd := &cobra.Command{Use: "revoke SHARE [URL]", Short: "Revoke a share and end its connections"}
	flags.register(cmd, func(ctx context.Context, out io.Writer, args []string) error {
		if err := flags.call(ctx, http.MethodDelete, args[0], nil, &contracts.SuccessAnswer{}); err != nil {
			return err
		}
		_, err := fmt.Fprintf(out, "share %s is revoked\n", args[0])
		return err
	})
	return cmd
}

var errShareOfShare = errors.New("a share cannot make, list or revoke shares: leave #share= out of the URL")

const (
	sharePatience  = 30 * time.Second // for the server to answer
	maxShareAnswer = 1 << 20          // bytes; 256 shares take less
)

// call sends a request about the shares of the session, or about one, and decodes the
// answer.
func (f *shareFlags) call(ctx context.Context, method, share string, body, answer any) error {
	path := []string{"api/headless/sessions", url.PathEscape(f.session), "shares"}
	if share != "" {
		path = append(path, url.PathEscape(share))
	}
	u := *f.server
	u.Scheme = strings.Replace(u.Scheme, "ws", "http", 1)
	u.Path = strings.TrimSuffix(u.Path, "/api/headless/ws")
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, sharePatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, u.JoinPath(path...).String(), bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	file, err := f.token()
	if err == nil && file != "" {
		var token []byte
		token, err = os.ReadFile(file)
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }() // the needed part was read
	text, err = io.ReadAll(io.LimitReader(res.Body, maxShareAnswer))
	if err != nil {
		return err
	}
	if res.StatusCode == http.StatusOK {
		return json.Unmarshal(text, answer)
	}
	var refusal struct{ Error string }
	if json.Unmarshal(text, &refusal) != nil || refusal.Error == "" {
		return errors.New(res.Status)
	}
	return fmt.Errorf("%s: %s", res.Status, show.InLine(refusal.Error, show.MaxArgs))
}
