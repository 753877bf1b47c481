package main

import (
	"context"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/lease"
)

func (a *app) roleStateCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "state",
		Short: "What a primary keeps for its successors: a checkpoint, a token",
		Long: `Up to 64 KiB that are kept beside a role, such as a checkpoint or a rotating token.
Only the primary under the present term can write them; whoever takes the role over
finds what was written last.`,
		Example: `  understudy role state get report
  echo "page 7" | understudy role state put report --term 1767323045000`,
	}
	place := 0
	c.PersistentFlags().IntVar(&place, "place", 0, "of a role with several holders, the `NUMBER` of the place (default 1; in a program of role run, its own)")
	get := &cobra.Command{
		Use:     "get ROLE",
		Short:   "Print the state; exit 3 if there is none",
		Example: "  understudy role state get report > checkpoint",
		Args:    startingWith(elect.ValidateRole, "ROLE"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := findPlace(c, args[0], &place); err != nil {
				return err
			}
			return a.callAPI(c.Context(), func(ctx context.Context, c *client.Client) error {
				state, err := c.RoleState(ctx, args[0], place)
				if err != nil {
					return err
				}
				return a.printState(state)
			})
		},
	}
	var term int64
	put := &cobra.Command{
		Use:   "put ROLE [--term TERM]",
		Short: "Replace the state with standard input, under the current term",
		Example: `  understudy role state put report < checkpoint        # in a program of role run
  understudy role state put report --term 1767323045000 < checkpoint`,
		Args: startingWith(elect.ValidateRole, "ROLE"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := findPlace(c, args[0], &place); err != nil {
				return err
			}
			if term == 0 {
				var err error
				if term, err = ownTerm(args[0]); err != nil {
					return err
				}
			}
			if term == 0 {
				return usererr.Errorf("role state put: --term is missing; the program of role run has it in UNDERSTUDY_TERM")
			}
			// Before callAPI, which allows callTimeout for what it does: a program may write its checkpoint for longer.
			data, err := io.ReadAll(io.LimitReader(standardInput(c), lease.MaxState+1))
			if err != nil {
				return err
			}
			if err := lease.ValidateState(data); err != nil {
				return err
			}
			return a.callAPI(c.Context(), func(ctx context.Context, c *client.Client) error {
				return c.PutRoleState(ctx, args[0], place, apitype.LeaseState{Term: term, State: data})
			})
		},
	}
	put.Flags().Int64Var(&term, "term", 0, "the present `TERM` (default in a program of role run: its own, UNDERSTUDY_TERM)")
	c.AddCommand(get, put)
	return c
}

func (a *app) printState(state apitype.LeaseState) error {
	if a.json() {
		return a.printJSON(state)
	}
	_, err := a.stdout.Write(state.State)
	return err
}

// ownTerm is the term of a program that role run has started for this role; 0 for any other.
func ownTerm(role string) (int64, error) {
	text := os.Getenv("UNDERSTUDY_TERM")
	if text == "" || os.Getenv("UNDERSTUDY_ROLE") != role {
		return 0, nil
	}
	term, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, usererr.Errorf("role state put: UNDERSTUDY_TERM is %q, which is not a number; give --term", text)
	}
	return term, nil
}

// findPlace completes and checks the place of the role.
func findPlace(c *cobra.Command, role string, place *int) error {
	if !c.Flags().Changed("place") {
		*place = 1
		if n, err := strconv.Atoi(os.Getenv("UNDERSTUDY_PLACE")); err == nil && os.Getenv("UNDERSTUDY_ROLE") == role {
			*place = n
		}
	}
	if *place < 1 || *place > elect.MaxHolders {
		return usererr.Errorf("--place %d; 1 to %d are possible", *place, elect.MaxHolders)
	}
	return nil
}
