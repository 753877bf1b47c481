package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/internal/usererr"
)

func (a *app) tokenCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "token",
		Short: "Tokens of the API: create, list, revoke",
		Long: `A token lets an operator or a program use the servers on this store. Its scopes say what it may do:

  read    read everything
  act     make changes, and read everything
  ingest  send heartbeats and messages, and nothing else

Tokens are in the store, for all servers on it; the secret of one is not, and is shown once, when
the token is made. The token in a server's configuration is another: it may do everything. A server without
one answers on this host alone, to everyone, and needs no tokens.`,
		Example: `  understudy token create grafana --scope read
  understudy token create ci --scope act --scope ingest --expires 90d
  understudy token revoke grafana`,
	}
	c.AddCommand(a.tokenCreateCommand(), a.tokenListCommand(), a.tokenRevokeCommand())
	return c
}

func (a *app) tokenCreateCommand() *cobra.Command {
	var scopes []string
	var expires string
	c := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a token, and print its secret",
		Long: `Create a token, and print its secret, on a line by itself. The secret cannot be shown again: put it
where it is needed. The history lists what the token is used for under its NAME, which no other valid token has.`,
		Example: `  understudy token create grafana --scope read
  understudy token create backup-1 --scope ingest --expires 365d > /etc/understudy.token`,
		Args: exactly("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			a.mayCreate = true
			may, err := access.ParseScopes(scopes)
			if err != nil {
				return usererr.Errorf("--scope: use read, act or ingest, as often as needed")
			}
			lasts, err := lifetime(expires)
			if err != nil {
				return err
			}
			if _, _, err := access.NewToken(args[0], may, operator()); err != nil {
				return err // before anybody is asked
			}
			return a.callAPI(c.Context(), func(ctx context.Context, c *client.Client) error {
				t, secret, err := c.CreateToken(ctx, client.NewToken{Name: args[0], Scopes: may.Names(), Lasts: lasts, By: operator()})
				if err != nil {
					return err
				}
				return a.printToken(apitype.TokenSecret{Token: t, Secret: secret})
			})
		},
	}
	c.Flags().StringArrayVar(&scopes, "scope", nil, "what it may do: `SCOPE` read, act or ingest (may be repeated)")
	c.Flags().StringVar(&expires, "expires", "", "when it ends, such as 90d or 12h `FROM-NOW` (default: never)")
	return c
}

// printToken prints the secret alone on stdout, so that it can be put into a file, and the rest beside it.
func (a *app) printToken(made apitype.TokenSecret) error {
	if a.json() {
		return a.printJSON(made)
	}
	t := made.Token
	until := "for ever"
	if !t.Expires.IsZero() {
		until = "until " + t.Expires.Local().Format("2006-01-02 15:04")
	}
	fmt.Fprintf(a.stderr, "token %s %q may %s, %s; its secret is shown this once:\n", t.ID, termtext.Text(t.Name), strings.Join(t.Scopes, ", "), until)
	_, err := fmt.Fprintln(a.stdout, made.Secret)
	return err
}

func (a *app) tokenListCommand() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List the valid tokens",
		Example: `  understudy token list
  understudy token list --all -o json | jq -r 'select(.state == "live") | .name'`,
		Args: noArgs,
		RunE: a.apiRunE(func(ctx context.Context, c *client.Client, _ []string) error {
			tokens, err := c.Tokens(ctx)
			if err != nil {
				return err
			}
			if !all {
				tokens = slices.DeleteFunc(tokens, func(t apitype.Token) bool { return t.State != apitype.TokenLive })
			}
			return printList(a, tokens, "ID\tNAME\tSCOPES\tSTATE\tCREATED\tENDS", func(t apitype.Token) string {
				ends := when(t.Expires)
				if !t.Revoked.IsZero() {
					ends = when(t.Revoked) + " by " + t.RevokedBy
				}
				return row(t.ID, t.Name, strings.Join(t.Scopes, ", "), t.State, when(t.Created)+" by "+t.By, ends)
			})
		}),
	}
	c.Flags().BoolVarP(&all, "all", "a", false, "include revoked and expired tokens")
	return c
}

func (a *app) tokenRevokeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke ID|NAME",
		Short: "Revoke a token for good",
		Long: `Revoke a token for good. Servers read the tokens at most once a second: a token may work for up to two seconds
more, and with a server that cannot reach the store for as long as it cannot.`,
		Example: `  understudy token revoke grafana`,
		Args:    exactly("ID or NAME"),
		RunE: a.apiRunE(func(ctx context.Context, c *client.Client, args []string) error {
			t, err := c.RevokeToken(ctx, args[0], operator())
			if errors.Is(apiError(err), access.ErrNotFound) {
				return absentf("no token that is good is called %q, and none has that id; see: understudy token list --all", args[0])
			}
			if err != nil {
				return err
			}
			return a.print(t, "token %s %q is revoked", t.ID, t.Name)
		}),
	}
}

// lifetime reads how long a token lasts: a duration, which may be in days; 0 is for ever.
func lifetime(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if days, isDays := strings.CutSuffix(text, "d"); isDays {
		var n int
		if n, err = strconv.Atoi(days); err == nil && n <= int(access.MaxLife.Hours()/24) {
			d = time.Duration(n) * 24 * time.Hour
		}
	}
	if err != nil || d < access.MinLife || d > access.MaxLife {
		return 0, usererr.Errorf("--expires %q: write for instance 90d or 12h, up to ten years", text)
	}
	return d, nil
}
