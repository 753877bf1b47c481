package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/internal/doctor"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/open"
)

func (a *app) storeCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "store",
		Short:   "Manage the store: its schema, its health, where it is",
		Example: "  understudy store check --store postgres://db/app",
	}
	var into bool
	migrate := a.storeVerb("migrate", "Bring the store's schema up to date", "understudy store migrate --store postgres://owner@db/app", &into, a.storeMigrate)
	migrate.Flags().BoolVar(&into, "into-existing", false, "add the tables to an SQLite database that has tables of another program")
	check := a.storeVerb("check", "Check that the store answers and its schema fits, changing nothing", "understudy store check -o json", new(bool), a.storeCheck)
	var salvage string
	check.Flags().StringVar(&salvage, "salvage", "", "copy what can be read of a damaged SQLite store into the new `FILE`")
	only := check.RunE
	check.RunE = func(c *cobra.Command, args []string) error {
		if salvage == "" {
			return only(c, args)
		}
		return a.storeSalvage(c.Context(), salvage)
	}
	c.AddCommand(
		migrate,
		check,
		&cobra.Command{
			Use: "path", Short: "Print the store that is used", Args: noArgs,
			Example: "  understudy store path",
			RunE: func(*cobra.Command, []string) error {
				if err := a.needStore(); err != nil {
					return err
				}
				url := termtext.URL(a.StoreURL)
				return a.print(map[string]string{"store": url}, "%s", url)
			},
		},
	)
	return c
}

func (a *app) storeVerb(name, short, example string, intoExisting *bool, do func(context.Context, store.Store) error) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, Args: noArgs, Example: "  " + example,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := a.needStore(); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), 12*callTimeout)
			defer cancel()
			st, err := open.Open(ctx, a.StoreURL, open.Options{NoMigrate: true, IntoExisting: *intoExisting, Logger: a.Log})
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
	text := fmt.Sprintf("schema migrated from version %d to %d", from, to)
	if from == to {
		text = fmt.Sprintf("schema is up to date (version %d)", to)
	}
	return a.print(map[string]int{"from": from, "to": to}, "%s", text)
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
	return doctor.SchemaFits(info)
}

// storeSalvage copies what can be read of a damaged store.
func (a *app) storeSalvage(ctx context.Context, to string) error {
	if err := a.needStore(); err != nil {
		return err
	}
	out, err := open.Salvage(ctx, a.StoreURL, to)
	if err != nil {
		return err
	}
	if a.json() {
		return a.printJSON(out)
	}
	rows, hurt := int64(0), 0
	for _, t := range out.Tables {
		if rows += t.Rows; t.Damage != "" {
			hurt++
			fmt.Fprintf(a.stdout, "%s  %d rows copied, others not: %s\n", t.Name, t.Rows, termtext.Text(t.Damage))
		}
	}
	for _, r := range out.Repairs {
		fmt.Fprintf(a.stdout, "%d %s\n", r.Rows, r.What)
	}
	if len(out.NotCopied) > 0 {
		fmt.Fprintf(a.stdout, "not copied: %s (tables of another program)\n", termtext.Text(strings.Join(out.NotCopied, ", ")))
	}
	if out.Unreadable > 0 {
		fmt.Fprintf(a.stdout, "the disk could not read %d bytes of the file\n", out.Unreadable)
	}
	fmt.Fprintf(a.stdout, "%d rows of %d tables copied to %s, %d tables are damaged\n", rows, len(out.Tables), termtext.Text(to), hurt)
	return nil
}

func (a *app) printInfo(info store.Info) {
	wakes := "yes"
	if !info.Notifies {
		wakes = "no: changes are found by polling, once per interval"
	}
	fmt.Fprintf(a.stdout, "store     %s\nserver    %s\nschema    %d (this program wants %d)\nwakes     %s\nclock     %s\n",
		termtext.Text(info.Location), termtext.Text(info.Server), info.Schema, info.Wanted, wakes, info.Now.UTC().Format("2006-01-02 15:04:05.000 UTC"))
	for _, w := range info.Warnings {
		fmt.Fprintf(a.stdout, "warning   %s\n", termtext.Text(w))
	}
}
