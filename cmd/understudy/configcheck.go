package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/lease"
)

func (a *app) configCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "The server's file: check it, print an example, its schema, and what is in force",
		Example: `  understudy config example >understudy.yaml
  understudy config check understudy.yaml
  understudy config show understudy.yaml`,
	}
	c.AddCommand(a.fileCheckCommand(), a.exampleCommand(), a.schemaCommand(), a.configShowAllCommand())
	return c
}

func (a *app) fileCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Check a file as the server would, and print what it would run and how fast it is taken over",
		Long: `Check a file as "understudy serve -c FILE" does before it starts, with the environment and the files of secrets
that it names, but without a store: exit 2 and all that is wrong, with lines. If nothing is, print each part
that would run, and the longest that its work rests when this instance dies and another is well.`,
		Example: `  understudy config check /etc/understudy.yaml
  understudy config check understudy.yaml -o json | jq -r '.parts[] | "\(.part) \(.name): \(.worst_ms) ms"'`,
		Args: exactly("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			if args[0] == "" {
				return usagef("config check: the name of FILE is empty")
			}
			cfg, err := readConfig(args[0])
			if err != nil {
				return a.printWrong(args[0], err)
			}
			for _, w := range strangers(os.Environ()) {
				fmt.Fprintf(a.stderr, "warning: %s\n", clean(w))
			}
			return a.printRight(args[0], cfg)
		},
	}
}

// printWrong gives a program all errors as a list, and people the error itself.
func (a *app) printWrong(path string, err error) error {
	if !a.json() {
		return err
	}
	out := struct {
		File   string   `json:"file"`
		Valid  bool     `json:"valid"`
		Errors []string `json:"errors"`
	}{File: path}
	for _, e := range each(err) {
		out.Errors = append(out.Errors, clean(e.Error()))
	}
	if err := a.printJSON(out); err != nil {
		return err
	}
	return usagef("%s: %d errors", path, len(out.Errors))
}

// partView is a part that would run, and how long its work rests at worst.
type partView struct {
	Part string `json:"part"`
	Name string `json:"name"`
	// WorstMS is the takeover at worst, in milliseconds: of several bounds the longest.
	WorstMS int64 `json:"worst_ms"`
	// Means says when that is.
	Means string `json:"means"`
}

func partOf(part, name string, worst time.Duration, format string, args ...any) partView {
	return partView{part, name, worst.Milliseconds(), fmt.Sprintf(format, args...)}
}

func (a *app) printRight(path string, cfg *serveConfig) error {
	parts, from := cfg.parts(), []string{}
	for _, k := range environTaken() {
		from = append(from, k.name)
	}
	if a.json() {
		return a.printJSON(map[string]any{"file": path, "valid": true, "listen": cfg.Listen, "environment": from, "parts": append([]partView{}, parts...)})
	}
	fmt.Fprintf(a.stdout, "%s: no errors\n", clean(path))
	if len(from) > 0 {
		fmt.Fprintf(a.stdout, "from the environment: %s\n", strings.Join(from, ", "))
	}
	fmt.Fprintf(a.stdout, "page and API at %s://%s; it would run:\n\n", cfg.scheme(), clean(cfg.Listen))
	var rows []string
	for _, p := range parts {
		worst := "-"
		if p.WorstMS > 0 {
			worst = short(time.Duration(p.WorstMS) * time.Millisecond)
		}
		rows = append(rows, row(p.Part, p.Name, worst, p.Means))
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintln(a.stdout, "no part: the page and the API alone")
		return err
	}
	return a.table("PART\tNAME\tTAKEN OVER WITHIN\tTHAT IS", rows)
}

// silentSlack is what a silent host costs besides T + I: to knock once more, and the wait for
// the fence of a host that cannot be asked. See docs/shard.md.
const silentSlack = 2500 * time.Millisecond

// parts are what the server would run, in the file's order.
func (c *serveConfig) parts() []partView {
	var out []partView
	t := c.timing()
	for _, r := range c.Roles {
		out = append(out, partOf("role", r.Role, t.WorstTakeover(), "T + I: timeout %s, interval %s", short(t.Timeout), short(t.Interval)))
	}
	for i := range c.Queues {
		out = append(out, c.Queues[i].part("queue", c.Queues[i].Queue))
	}
	if m := c.Monitor; m != nil {
		idle, _ := m.windows().WorstTakeover()
		out = append(out, partOf("monitor", "sources", idle, "first window %s, and a look", short(m.windows().First)))
		out = append(out, partOf("monitor", "configuration", t.WorstTakeover(), "T + I, of the role %q", activeRole))
		for i := range m.Sinks {
			out = append(out, m.Sinks[i].queue().part("sink", m.Sinks[i].Sink))
		}
	}
	if c.Cache != nil {
		p := c.cacheTimings()
		out = append(out, partOf("cache", c.Cache.URL, p.Source, "a fetch of a peer that hangs: announce timeout; one whose process ends is taken over at once"))
	}
	for i := range c.Shards {
		s := &c.Shards[i]
		t := s.timing()
		out = append(out, partOf("shard", s.Shard+" at "+s.Node, t.WorstTakeover()+silentSlack,
			"a host that falls silent: T + I + 2.5s; a process that dies: 0.3s, 2s more if an agent has died as well"))
	}
	if c.Sentinel != nil {
		out = append(out, partOf("sentinel", c.Sentinel.Listen, 0, "each server answers by itself"))
	}
	if c.DNS != nil {
		out = append(out, partOf("dns", c.DNS.Zone+" at "+c.DNS.Listen, 0, "each server answers by itself; an answer is believed for %s at most", short(time.Duration(c.DNS.TTLMax))))
	}
	for _, h := range c.Hooks {
		out = append(out, h.part(t))
	}
	return out
}

func (q *queueConfig) part(part, name string) partView {
	idle, submitting := q.windows().WorstTakeover()
	return partOf(part, name, submitting, "a key with a submission under way; %s without: first window %s, second %s, and a look",
		short(idle), short(q.windows().First), short(q.windows().Second))
}

func (h hookConfig) part(t lease.Timing) partView {
	name := filepath.Base(h.Command[0])
	if h.OnlyPrimaryOf == "" {
		return partOf("hook", name, 0, "each server runs it by itself")
	}
	return partOf("hook", name, t.WorstTakeover(), "with the role %q", h.OnlyPrimaryOf)
}
