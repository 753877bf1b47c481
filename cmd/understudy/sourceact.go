package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/internal/plain"
	"github.com/understudy-ha/understudy/internal/usage"
	"github.com/understudy-ha/understudy/monitor"
)

func (a *app) sourceDeclareCommand() *cobra.Command {
	var labels []string
	c := &cobra.Command{
		Use:   "declare EVENT SOURCE…",
		Short: "Make sources known before their first beat",
		Long: `Make sources known before their first beat: one that never beats raises an alarm, a whole limit
after it was declared. A source that is known gets these labels.`,
		Example: `  understudy source declare nightly-backup db-1 db-2 --label site=north
  xargs understudy source declare fleet <hosts.txt`,
		Args: atLeast("EVENT", "SOURCE"),
		RunE: func(c *cobra.Command, args []string) error {
			set, err := parseLabels(labels)
			if err != nil {
				return err
			}
			declared := make([]monitor.Declaration, 0, len(args)-1)
			for _, source := range args[1:] {
				d := monitor.Declaration{Event: args[0], Source: source, Labels: set}
				if err := d.Validate(); err != nil {
					return err
				}
				declared = append(declared, d)
			}
			return a.withSources(c.Context(), func(ctx context.Context, t sourceDesk) error {
				return a.declare(ctx, t, declared)
			})
		},
	}
	c.Flags().StringArrayVar(&labels, "label", nil, "give them this label, `NAME=VALUE`; repeat it for more")
	return c
}

// declare tells of each source whether it is new.
func (a *app) declare(ctx context.Context, t sourceDesk, sources []monitor.Declaration) error {
	for some := range slices.Chunk(sources, monitor.MaxSources) {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		added, err := t.Declare(call, some)
		cancel()
		if err != nil {
			return err
		}
		for i, d := range some {
			if a.json() {
				err = a.printJSON(map[string]any{"event": d.Event, "source": d.Source, "added": added[i]})
			} else if added[i] {
				_, err = fmt.Fprintf(a.stdout, "declared: %s\n", plain.Text(d.Source))
			} else {
				_, err = fmt.Fprintf(a.stdout, "known already: %s\n", plain.Text(d.Source))
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func parseLabels(texts []string) (map[string]string, error) {
	out := make(map[string]string, len(texts))
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, usage.Errorf("--label %q: use NAME=VALUE", text)
		}
		out[name] = value
	}
	return out, nil
}

func (a *app) sourcePauseCommand() *cobra.Command {
	var note string
	var span time.Duration
	c := &cobra.Command{
		Use:   "pause EVENT [SOURCE…]",
		Short: "Do not judge sources, or all of an event, until they are resumed",
		Long: `Do not judge sources for a while, or all sources of an event if none is named: no alarm is
raised. One that stands ends when the source beats again. A pause ends by "source resume", or by itself
with --for; then the source has a whole limit to show itself. Who and why is kept in the history.`,
		Example: `  understudy source pause nightly-backup db-1 --for 2h --note "new disk"
  understudy source pause nightly-backup`,
		Args: atLeast("EVENT"),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case span < 0 || span > monitor.MaxInterval:
				return usage.Errorf("--for %v: use up to %v", span, monitor.MaxInterval)
			case span > 0 && len(args) == 1:
				return usage.Errorf("--for belongs to sources; an event is paused until \"source resume %s\"", args[0])
			}
			return a.sourceAct(c.Context(), monitor.Action{Verb: monitor.Pause, For: span, Note: note}, args)
		},
	}
	c.Flags().DurationVar(&span, "for", 0, "let the pause end by itself after this `TIME`, such as 2h; 0 is never")
	c.Flags().StringVar(&note, "note", "", "`WHY`, for the history and for who looks at the source")
	return c
}

func (a *app) sourceResumeCommand() *cobra.Command {
	var note string
	c := &cobra.Command{
		Use:   "resume EVENT [SOURCE…]",
		Short: "Judge sources again, or all of an event, that were paused",
		Long: `Judge sources again that were paused, or all sources of an event if none is named. They have a
whole limit to show themselves. A source that was paused by itself stays so when its event is resumed.`,
		Example: `  understudy source resume nightly-backup db-1
  understudy source resume nightly-backup`,
		Args: atLeast("EVENT"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.sourceAct(c.Context(), monitor.Action{Verb: monitor.Unpause, Note: note}, args)
		},
	}
	c.Flags().StringVar(&note, "note", "", "`WHY`, for the history")
	return c
}

func (a *app) sourceRetireCommand() *cobra.Command {
	var note string
	c := &cobra.Command{
		Use:   "retire EVENT SOURCE…",
		Short: "Put sources away that will beat no more",
		Long: `Put sources away that will beat no more: their alarms end, and they are not judged. A beat brings
a source back. An instance of the monitor does it within a moment.`,
		Example: `  understudy source retire fleet web-17 --note "scrapped"
  understudy source list --event fleet --state down -o json | jq -r .source | xargs understudy source retire fleet`,
		Args: atLeast("EVENT", "SOURCE"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.sourceAct(c.Context(), monitor.Action{Verb: monitor.PutAway, Note: note}, args)
		},
	}
	c.Flags().StringVar(&note, "note", "", "`WHY`, for the history and for who looks at the source")
	return c
}

// sourceAct does something with the sources of an event that are named, or with the
// event itself.
func (a *app) sourceAct(ctx context.Context, act monitor.Action, args []string) error {
	act.Event, act.Who = args[0], who()
	if len(args) == 1 {
		return a.actOnEach(ctx, string(act.Verb), "event", args, func(string) monitor.Action { return act })
	}
	return a.actOnEach(ctx, string(act.Verb), "source", args[1:], func(source string) monitor.Action {
		act.Source = source
		return act
	})
}
