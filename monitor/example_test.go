package monitor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store/sqlite"
)

// Declare what to expect, start an instance, send a heartbeat, fall silent, and see the alarm.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	dir, err := os.MkdirTemp("", "monitor")
	orPanic(err)
	defer os.RemoveAll(dir)
	db, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(dir, "monitor.db")})
	orPanic(err)
	defer db.Close()
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	store := db.Monitor()

	// What is expected: a heartbeat each 100 ms, of which two may be missed.
	_, err = store.Configure(ctx, monitor.Configuration{Checks: []monitor.Check{
		{Name: "backup", Interval: 100 * time.Millisecond, Missed: 2},
	}})
	orPanic(err)

	// This process receives heartbeats …
	in, err := monitor.NewIntake(monitor.IntakeConfig{Store: store})
	orPanic(err)
	running.Go(func() { orPanic(in.Run(ctx)) })
	path := in.OpenPath(monitor.PathConfig{Name: "http", Synchronous: true})

	// … and looks for sources that are overdue.
	windows := claim.Windows{First: time.Second, Second: time.Second}
	keeper, err := lease.NewKeeper(lease.KeeperConfig{Store: db, Instance: lease.NewInstance("one", ""), Timing: windows.Timing()})
	orPanic(err)
	running.Go(func() { _ = keeper.Run(ctx) })
	watcher, err := monitor.NewWatcher(monitor.WatcherConfig{Keeper: keeper, Claims: db.Claims(), Store: store, Windows: windows})
	orPanic(err)
	running.Go(func() { orPanic(watcher.Run(ctx)) })

	// web-1 is known from its first heartbeat. It sends no other.
	_, err = path.Record(ctx, []monitor.Heartbeat{{Check: "backup", Source: "web-1"}})
	orPanic(err)

	for {
		alarms, err := store.Alarms(ctx, monitor.AlarmQuery{Standing: true})
		orPanic(err)
		if len(alarms) > 0 {
			fmt.Println(alarms[0].Check, alarms[0].Source, alarms[0].Reason)
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	// Output: backup web-1 silent
}

// The rule is a pure function: it says what becomes of a source, given what the store knows of it.
func ExampleCheck_Evaluate() {
	c := monitor.Check{Name: "backup", Interval: 10 * time.Second}.WithDefaults()
	start := monitor.StoreTime(1_000_000)
	now := start.Add(31 * time.Second)
	v := c.Evaluate(monitor.Facts{
		Now: now, State: monitor.Up, ExpectedFrom: start, LastBeat: start,
		Path: monitor.PathStatus{Name: "http", LastSeen: now, TrustFor: time.Second, MaxGap: time.Second},
	})
	fmt.Println(v.Transition, v.Reason, "since", v.At.Sub(start))
	// Output: ONSET silent since 30s
}

// A check describes its own JSON: durations are milliseconds.
func ExampleCheck() {
	text, _ := json.Marshal(monitor.Check{Name: "backup", Schedule: "@daily", Grace: 2 * time.Hour})
	fmt.Println(string(text))
	// Output: {"check":"backup","schedule":"@daily","grace_ms":7200000}
}

func orPanic(err error) {
	if err != nil {
		panic(err)
	}
}
