package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// options are the command line's.
type options struct {
	only   []string // sections or groups of them to run; all when empty
	kinds  []string // stores and peers to measure
	rounds int      // measurements per figure, where each takes long
	crowd  int      // instances on one PostgreSQL
	json   string   // file for the figures
	doc    string   // file to put the tables into
	from   string   // file of figures to show instead of taking any
	drains int      // measurements per figure of a queue, the cache or the monitor
	fails  int      // outages and switchovers of a shard to measure, each with new processes
}

func main() {
	if len(os.Args) == 3 {
		if run := processRoles()[os.Args[1]]; run != nil {
			os.Exit(runRole(run, os.Args[2]))
		}
	}
	var o options
	only := flag.String("only", "", "sections or groups of them to run, separated by commas: leases (handover,takeover,cost,crowd,footprint), jobs (lag,river,gocron), queues (rate,enqueue,latency,backlog,snapshot,claims), cache (hot,cold,busy,lost,reload), monitor (intake,silence,killed,million), shard (node,host,silent,hung,crash,switchover,agent,many)")
	kinds := flag.String("kinds", "sqlite,postgres,redis,etcd", "what to measure, separated by commas")
	flag.IntVar(&o.rounds, "rounds", 60, "hand-overs and takeovers to measure per store")
	flag.IntVar(&o.crowd, "crowd", 1000, "instances on one PostgreSQL")
	flag.IntVar(&o.drains, "drains", 3, "measurements per figure of a queue, the cache or the monitor")
	flag.IntVar(&o.fails, "fails", 6, "outages and switchovers of a shard to measure of each kind")
	flag.StringVar(&o.json, "json", "results.json", "file to write the figures to, \"\" for none")
	flag.StringVar(&o.doc, "doc", "", "Markdown file to put the tables into, those of each group between its lines \"<!-- group: written by bench -doc -->\" and \"<!-- end of group -->\"")
	flag.StringVar(&o.from, "from", "", "show the figures of this file instead of taking any")
	flag.Parse()
	// What starts real servers asks testing.Short; after Parse, so that -h shows no flags of tests.
	testing.Init()
	o.only, o.kinds = list(*only), list(*kinds)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func list(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
}

func run(ctx context.Context, o options) error {
	r, err := load(o.from)
	if err != nil {
		return err
	}
	if o.from == "" {
		r = measure(ctx, o)
	}
	if o.doc != "" {
		if err := r.document(o.doc); err != nil {
			return err
		}
	}
	r.write(os.Stdout)
	return nil
}

func measure(ctx context.Context, o options) *Report {
	b := &bed{}
	defer b.clear()
	// An interrupted run must leave no server and no file behind.
	unhook := context.AfterFunc(ctx, func() { b.Fatal("bench: interrupted") })
	defer unhook()

	r := &Report{Machine: describeMachine()}
	for _, s := range sections() {
		if len(o.only) > 0 && !slices.Contains(o.only, s.name) && !slices.Contains(o.only, s.group) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s …\n", s.name)
		s.run(ctx, b, o, r)
		b.clear()
		// After each section: the run is long, and a later one may not come to its end.
		if o.json != "" {
			if err := r.save(o.json); err != nil {
				b.Fatal(err)
			}
		}
	}
	return r
}

type section struct {
	group, name string
	run         func(context.Context, *bed, options, *Report)
}

func sections() []section {
	return []section{
		{"leases", "handover", handOver}, {"leases", "takeover", takeOver}, {"leases", "cost", cost}, {"leases", "crowd", crowd},
		{"leases", "footprint", footprint},
		{"jobs", "lag", jobLag}, {"jobs", "river", riverJobs}, {"jobs", "gocron", gocronJobs},
		{"queues", "rate", rate}, {"queues", "enqueue", enqueue}, {"queues", "latency", latency}, {"queues", "backlog", backlog},
		{"queues", "snapshot", snapshot}, {"queues", "claims", claims},
		{"cache", "hot", hot}, {"cache", "cold", cold}, {"cache", "busy", busy}, {"cache", "lost", lost}, {"cache", "reload", reload},
		{"monitor", "intake", takeIn}, {"monitor", "silence", silence}, {"monitor", "killed", killed}, {"monitor", "million", million},
		{"shard", "node", shardOutage(nodeOutage)}, {"shard", "host", shardOutage(hostOutage)}, {"shard", "silent", shardOutage(silentOutage)}, {"shard", "hung", shardOutage(hungOutage)},
		{"shard", "crash", shardCrash}, {"shard", "switchover", shardSwitchover}, {"shard", "agent", shardAgents}, {"shard", "many", shardMany},
	}
}
