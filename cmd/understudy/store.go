package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/open"
)

func (a *app) storeCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "store",
		Short:   "Look after the store: its schema, its health, where it is",
		Example: "  understudy store check --store postgres://db/app",
	}
	c.AddCommand(
		a.storeVerb("migrate", "Bring the store's schema up to date", "understudy store migrate --store postgres://owner@db/app", a.storeMigrate),
		a.storeVerb("check", "Check that the store answers and its schema fits, changing nothing", "understudy store check -o json", a.storeCheck),
		&cobra.Command{
			Use: "path", Short: "Print the store that is used", Args: noArgs,
			Example: "  understudy store path",
			RunE: func(*cobra.Command, []string) error {
				if err := a.needStore(); err != nil {
					return err
				}
				if a.json() {
					return a.printJSON(map[string]string{"store": redact(a.storeURL)})
				}
				_, err := fmt.Fprintln(a.stdout, redact(a.storeURL))
				return err
			},
		},
	)
	return c
}

func (a *app) storeVerb(name, short, example string, do func(context.Context, store.Store) error) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, Args: noArgs, Example: "  " + example,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := a.needStore(); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), 12*callTimeout)
			defer cancel()
			st, err := open.Open(ctx, a.storeURL, open.Options{NoMigrate: true, Logger: a.log})
			if err != nil {
				return err
			}
			defer st.Close()
			return do(ctx, st)
		},
	}
}

func (a *app) storeMigrate(ctx context.Context, st store.Store) error {
	from, to, err := st.Migrate(ctx)
	if err != nil {
		return err
	}
	if a.json() {
		return a.printJSON(map[string]int{"from": from, "to": to})
	}
	if from == to {
		_, err = fmt.Fprintf(a.stdout, "schema is up to date (version %d)\n", to)
	} else {
		_, err = fmt.Fprintf(a.stdout, "schema migrated from version %d to %d\n", from, to)
	}
	return err
}

func (a *app) storeCheck(ctx context.Context, st store.Store) error {
	info, err := st.Inspect(ctx)
	if err != nil {
		return err
	}
	if a.json() {
		if err := a.printJSON(info); err != nil {
			return err
		}
	} else {
		a.printInfo(info)
	}
	return schemaFits(info)
}

func (a *app) printInfo(info store.Info) {
	wakes := "yes"
	if !info.Notifies {
		wakes = "no: changes are found by polling, once per interval"
	}
	fmt.Fprintf(a.stdout, "store     %s\nserver    %s\nschema    %d (this program wants %d)\nwakes     %s\nclock     %s\n",
		clean(info.Location), clean(info.Server), info.Schema, info.Wanted, wakes, info.Now.UTC().Format("2006-01-02 15:04:05.000 UTC"))
	for _, w := range info.Warnings {
		fmt.Fprintf(a.stdout, "warning   %s\n", clean(w))
	}
}

func schemaFits(info store.Info) error {
	switch {
	case info.Schema > info.Wanted:
		return fmt.Errorf("%w: the store has version %d, this program knows %d: use a newer understudy", store.ErrSchema, info.Schema, info.Wanted)
	case info.Schema < info.Wanted:
		return fmt.Errorf("%w: the store has version %d, this program wants %d: run understudy store migrate", store.ErrSchema, info.Schema, info.Wanted)
	default:
		return nil
	}
}

// redact hides the passwords of a URL, wherever a store may take them from.
func redact(url string) string {
	head, rest, ok := strings.Cut(url, "://")
	if !ok {
		return url
	}
	rest, query, asked := strings.Cut(rest, "?")
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		if user, _, secret := strings.Cut(rest[:at], ":"); secret {
			rest = user + ":***" + rest[at:]
		}
	}
	if !asked {
		return head + "://" + rest
	}
	options := strings.Split(query, "&")
	for i, option := range options {
		if name, _, _ := strings.Cut(option, "="); strings.Contains(strings.ToLower(name), "pass") {
			options[i] = name + "=***"
		}
	}
	return head + "://" + rest + "?" + strings.Join(options, "&")
}
