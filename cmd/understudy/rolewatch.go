package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/lease"
)

func (a *app) roleWatchCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "watch ROLE",
		Short: "Print a line now and whenever the primary changes, until interrupted",
		Long: `Print a line now and whenever the primary changes, until interrupted. While the store or the server does not answer, the
last line may no longer be true: the log says when that starts, and when it ends.`,
		Example: `  understudy role watch billing
  understudy role watch billing -o json | while read -r line; do reload-proxy "$line"; done`,
		Args: startingWith(elect.ValidateRole, "ROLE"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withRunningAPI(c.Context(), func(ctx context.Context, c *client.Client) error { return a.watchRole(ctx, c, args[0]) })
		},
	}
}

// watchRole prints the primaries of a role whenever they change. It reads them when the history has an event of the role, when
// one of them could lapse, of which there is no event, and at least once a second.
func (a *app) watchRole(ctx context.Context, c *client.Client, role string) error {
	ofRole := func(e apitype.Event) bool {
		name, _, _ := strings.Cut(e.Subject, "#")
		return name == role
	}
	var last []apitype.Primary
	first := true
	return wokenBy(ctx, c, client.Follow{Part: elect.Space}, ofRole, func(ctx context.Context, wake <-chan struct{}) error {
		return a.poll(ctx, pollOptions{[]any{"role", role}, callTimeout, wake}, func(ctx context.Context) (time.Duration, error) {
			now, err := primariesOf(ctx, c, role)
			if err != nil {
				return 0, err
			}
			if first || !slices.EqualFunc(last, now, samePrimary) {
				if err := a.printChange(role, now); err != nil {
					return 0, err
				}
				first, last = false, now
			}
			pause := lease.DefaultInterval
			for _, p := range now {
				if p.ExpiresInMS > 0 {
					pause = min(pause, millis(p.ExpiresInMS+1))
				}
			}
			return pause, nil
		})
	})
}

// primariesOf returns no primary of a vacant role.
func primariesOf(ctx context.Context, c *client.Client, role string) ([]apitype.Primary, error) {
	r, err := c.Role(ctx, role)
	if refused, ok := errors.AsType[*client.Error](err); ok && refused.Code == "vacant" {
		return []apitype.Primary{}, nil
	}
	return r.Primaries, err
}

func samePrimary(a, b apitype.Primary) bool { return a.ID == b.ID && a.Term == b.Term }

func (a *app) printChange(role string, primaries []apitype.Primary) error {
	if a.json() {
		return a.printJSON(struct {
			Role      string            `json:"role"`
			Primaries []apitype.Primary `json:"primaries"`
		}{role, primaries})
	}
	names := []string{"vacant"}
	for i, p := range primaries {
		names = append(names[:i], fmt.Sprintf("%s %s term %d", p.Name, p.Address, p.Term))
	}
	_, err := fmt.Fprintf(a.stdout, "%s  %s  %s\n", time.Now().Format("15:04:05.000"), termtext.Text(role), termtext.Text(strings.Join(names, ", ")))
	return err
}
