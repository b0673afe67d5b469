package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-028515a8/maestro/client"
)

func loginCommand() *cobra.Command {
	var flags shareFlags
	cmd := &cobra.Command{
		Use: "login [URL]", Short: "Make a link that logs a browser in",
		Long: `Login prints a link that opens the server's page, once and within ten minutes. The browser
then has the rights of the token for 12 hours. For a colleague use maestro share.
The server is a URL, HOST:PORT, or a PORT on 127.0.0.1.`,
	}
	flags.register(cmd, func(ctx context.Context, out io.Writer, _ []string) error {
		return flags.ask(ctx, func(ctx context.Context, s *client.Server) error {
			next := ""
			if flags.session != "" {
				if _, err := s.Shares(ctx, flags.session); err != nil { // the link would lead nowhere
					return err
				}
				next = "&next=" + url.QueryEscape("/#session="+url.QueryEscape(flags.session))
			}
			path, err := s.LoginPath(ctx)
			if err == nil {
				_, err = fmt.Fprintln(out, strings.TrimSuffix(pageOf(flags.server), "/")+path+next)
			}
			return err
		})
	})
	cmd.Flags().Lookup("session").Usage = "`ID` of the session that the page opens"
	return cmd
}
