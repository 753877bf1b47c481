package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/termtext"
)

func (a *app) roleCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "role",
		Short: "One primary per role: run a program, show, watch, resign, forget",
		Example: `  understudy role run billing -- ./billing --port 8080
  understudy role who billing`,
	}
	c.AddCommand(a.roleRunCommand(), a.roleOnceCommand(), a.roleWhoCommand(),
		a.roleListCommand(), a.roleWatchCommand(), a.roleResignCommand(), a.roleForgetCommand(), a.roleStateCommand())
	return c
}

func (a *app) roleWhoCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "who ROLE",
		Short: "Print the primary of a role; exit 3 if there is none",
		Example: `  understudy role who billing
  ssh "$(understudy role who billing -o json | jq -r .address)"`,
		Args: startingWith(elect.ValidateRole, "ROLE"),
		RunE: a.apiRunE(func(ctx context.Context, c *client.Client, args []string) error {
			role, err := c.Role(ctx, args[0])
			if err != nil {
				return err
			}
			return a.printPrimaries(role.Primaries)
		}),
	}
}

func (a *app) printPrimaries(holders []apitype.Primary) error {
	return printList(a, holders, "NAME\tADDRESS\tTERM\tSINCE\tLEFT\tID", func(p apitype.Primary) string {
		return row(p.Name, p.Address, p.Term, p.Since.Local().Format(time.DateTime), termtext.Brief(millis(p.ExpiresInMS)), p.ID)
	})
}

func (a *app) roleListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the roles, who holds them and who stands by",
		Example: "  understudy role list -o json",
		Args:    noArgs,
		RunE: a.apiRunE(func(ctx context.Context, c *client.Client, _ []string) error {
			roles, err := c.Roles(ctx)
			if err != nil {
				return err
			}
			return printAs(a, orEmpty(roles), a.printRoles)
		}),
	}
}

func (a *app) printRoles(roles []apitype.Role) error {
	var rows []string
	for _, r := range roles {
		standbys := make([]string, 0, len(r.Standbys))
		for _, s := range r.Standbys {
			standbys = append(standbys, s.Name)
		}
		waiting := strings.Join(standbys, ", ")
		if len(r.Primaries) == 0 {
			rows = append(rows, row(r.Role, "(vacant for "+termtext.Brief(millis(r.VacantForMS))+")", "", r.Term, "", "", waiting))
		}
		for _, p := range r.Primaries {
			rows = append(rows, row(r.Role, p.Name, p.Address, p.Term, p.Since.Local().Format(time.DateTime), termtext.Brief(millis(p.ExpiresInMS)), waiting))
			waiting = ""
		}
	}
	return a.table("ROLE\tPRIMARY\tADDRESS\tTERM\tSINCE\tLEFT\tSTANDBYS", rows)
}

func (a *app) roleResignCommand() *cobra.Command {
	var to string
	var all bool
	c := &cobra.Command{
		Use:   "resign ROLE",
		Short: "Ask the primary to resign, in favour of a named standby if you like",
		Long: `Ask the primary to resign. It stops its work and releases the role, and
a standby takes over within milliseconds. With --to, only that standby may have
the role for the length of one timeout. Of a role with several holders, the one
that has held it longest is asked; --all asks each. The history records who asked.`,
		Example: `  understudy role resign billing
  understudy role resign billing --to web-2
  understudy role resign worker --all`,
		Args: startingWith(elect.ValidateRole, "ROLE"),
		RunE: a.apiRunE(func(ctx context.Context, c *client.Client, args []string) error {
			asked, err := c.Resign(ctx, args[0], apitype.ResignRequest{To: to, All: all, By: operator()})
			if err != nil {
				return err
			}
			names := make([]string, len(asked.Primaries))
			for i, p := range asked.Primaries {
				names[i] = p.Name
			}
			return a.print(asked, "asked %s to resign from %s; see: understudy role watch %s", strings.Join(names, ", "), args[0], args[0])
		}),
	}
	c.Flags().StringVar(&to, "to", "", "`NAME` or ID of the standby that takes over")
	c.Flags().BoolVar(&all, "all", false, "ask every holder of a role with several")
	return c
}

func (a *app) roleForgetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "forget ROLE",
		Short: "Delete a role that nobody holds or waits for",
		Long: `Delete a role that nobody holds or waits for. If its last holder crashed, wait until its session lapses.
The role's terms still never fall. A server forgets vacant roles by itself: see forget_vacant_after in its file. The
history records who asked.`,
		Example: "  understudy role forget billing",
		Args:    startingWith(elect.ValidateRole, "ROLE"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.removeByAPI(c.Context(), "forget", "role", args[0], func(ctx context.Context, c *client.Client) error {
				return c.ForgetRole(ctx, args[0], operator())
			})
		},
	}
}
