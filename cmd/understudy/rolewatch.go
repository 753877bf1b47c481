package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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
	following, stop := context.WithCancelCause(ctx)
	wake := make(chan struct{}, 1)
	var events sync.WaitGroup
	defer events.Wait()
	defer stop(nil)
	events.Go(func() {
		stop(c.Events(following, client.Follow{Part: elect.Space}, func(e apitype.Event) error {
			if name, _, _ := strings.Cut(e.Subject, "#"); name == role {
				select {
				case wake <- struct{}{}:
				default:
				}
			}
			return nil
		}))
	})
	var last []apitype.Primary
	blind := false // the last line may no longer be true
	for first := true; ; {
		now, err := primariesOf(following, c, role)
		if err == nil && blind {
			blind = false
			a.Log.Info("the primary can be read again", "role", role)
		}
		refused, _ := errors.AsType[*client.Error](err)
		switch {
		case waitAsTold(following, err):
		case refused != nil && (refused.Status < 500 || refused.Code == "store_damaged"): // asking again is in vain
			return err
		case err != nil && !blind && following.Err() == nil:
			blind = true
			a.Log.Warn("the primary cannot be read and may have changed; trying again", "role", role, "err", apiError(err).Error())
		case err == nil && (first || !slices.EqualFunc(last, now, samePrimary)):
			if err := a.printChange(role, now); err != nil {
				return err
			}
			first, last = false, now
		}
		wait := lease.DefaultInterval
		for _, p := range now {
			if p.ExpiresInMS > 0 {
				wait = min(wait, millis(p.ExpiresInMS+1))
			}
		}
		select {
		case <-following.Done():
			if ctx.Err() != nil {
				return nil // interrupted
			}
			return context.Cause(following)
		case <-wake:
		case <-time.After(wait):
		}
	}
}

// primariesOf returns no primary of a vacant role.
func primariesOf(ctx context.Context, c *client.Client, role string) ([]apitype.Primary, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
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
