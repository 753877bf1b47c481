package main

import (
	"errors"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/internal/server"
	"github.com/understudy-ha/understudy/internal/usererr"
)

func (a *app) cacheRepairCommand() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "repair --data DIR",
		Short: "Replace the damaged file of a peer that does not start",
		Long: `Check the file in the data folder of a peer that is stopped. If it is damaged, set it aside and
make a new one, with what a peer must not forget as far as it can be read: the ceiling of the
terms that it voted or fetched in, the removals and the members. Copies come from the other peers.
Where the ceiling cannot be read, the peer waits for some seconds after its start before it votes
and fetches. Repair one peer at a time, while the others run.`,
		Example: `  understudy cache repair --data /var/lib/understudy/cache`,
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if dir == "" {
				return usererr.Errorf("--data is missing: which folder does the peer keep its copies in?")
			}
			done, err := server.RepairCache(c.Context(), dir)
			if errors.Is(err, fs.ErrNotExist) {
				return usererr.Errorf("--data: %v", err)
			}
			if err != nil {
				return err
			}
			view := map[string]any{"damage": done.Damage, "aside": done.Aside, "ceiling": done.Ceiling, "removals": done.Removals}
			switch {
			case done.Damage == "":
				return a.print(view, "nothing is wrong with the file in %s", dir)
			case done.Ceiling == 0:
				return a.print(view, "the damaged file is %s now; nothing could be read of it, and a new one is empty", done.Aside)
			}
			return a.print(view, "the damaged file is %s now; the new one has its ceiling of terms, its members and %d removals", done.Aside, done.Removals)
		},
	}
	c.Flags().StringVar(&dir, "data", "", "the data folder of the peer, `DIR`")
	return c
}
