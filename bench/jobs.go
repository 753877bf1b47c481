package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/open"
)

const (
	jobInstances = 10
	jobCount     = 10_000
	jobPeriod    = 10 * time.Minute // so that 17 runs a second are due, each at a time of its own
	jobMeasured  = time.Minute
)

// jobStarts are the starts of runs: how late each was, by the clock of this machine, which is the server's too.
type jobStarts struct {
	mu    sync.Mutex
	until time.Time
	from  time.Time
	late  sample
	seen  map[string]int
}

// note records a start; what was scheduled outside the time that is measured does not count.
func (s *jobStarts) note(name string, scheduled time.Time) {
	late := time.Since(scheduled)
	s.mu.Lock()
	defer s.mu.Unlock()
	if scheduled.Before(s.from) || scheduled.After(s.until) {
		return
	}
	s.late = append(s.late, late)
	s.seen[name+scheduled.String()]++
}

// measure waits for the time that is measured, and for what is late.
func (s *jobStarts) measure(b *bed, r *Report, subject string, due func(from, until time.Time) int) {
	s.mu.Lock()
	s.seen, s.late = map[string]int{}, nil
	s.from = time.Now().Add(time.Second)
	s.until = s.from.Add(jobMeasured)
	s.mu.Unlock()
	time.Sleep(time.Until(s.until) + 5*time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.late) == 0 {
		b.Fatalf("bench: %s started no job", subject)
	}
	twice := 0
	for _, n := range s.seen {
		twice += n - 1
	}
	r.add(
		Figure{Section: "jobs", Subject: subject, Name: "start after the scheduled time, median", Value: millis(s.late.median()), Unit: "ms", Bound: 20, Count: len(s.late)},
		Figure{Section: "jobs", Subject: subject, Name: "start after the scheduled time, p99", Value: millis(s.late.p99()), Unit: "ms", Bound: 100, Count: len(s.late)},
		Figure{Section: "jobs", Subject: subject, Name: "started twice", Value: float64(twice), Limited: true},
		Figure{Section: "jobs", Subject: subject, Name: "not started", Value: float64(due(s.from, s.until) - len(s.seen)), Limited: true},
	)
}

func jobName(n int) string { return fmt.Sprintf("job-%05d", n) }

// jobAnchor is a scheduled time of a job: all of them are spread over the period.
func jobAnchor(start time.Time, n int) time.Time {
	return start.Add(time.Duration(n) * jobPeriod / jobCount).Truncate(time.Second)
}

// jobsDue counts the scheduled times within.
func jobsDue(start time.Time) func(from, until time.Time) int {
	return func(from, until time.Time) (n int) {
		for i := range jobCount {
			at := jobAnchor(start, i)
			for at.Before(from) {
				at = at.Add(jobPeriod)
			}
			for ; !at.After(until); at = at.Add(jobPeriod) {
				n++
			}
		}
		return n
	}
}

// jobLag measures how late the runs of ten thousand jobs start on ten instances; the sections of River and gocron do the same.
func jobLag(ctx context.Context, b *bed, o options, r *Report) {
	for _, kind := range o.kinds {
		if kind != peerKind {
			understudyJobs(ctx, b, r, startOne(b, kind))
		}
	}
}

func definitionOf(start time.Time, n int) job.Definition {
	return job.Definition{Schedule: "every " + jobPeriod.String(), Anchor: jobAnchor(start, n)}
}

func understudyJobs(ctx context.Context, b *bed, r *Report, p place) {
	ctx, cancel := context.WithCancel(ctx)
	start, s := time.Now(), &jobStarts{}
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	offered := &countOffered{done: make(chan struct{})}
	first, err := open.Open(ctx, p.url, open.Options{})
	b.check(err, "opening %s", p.url)
	defer first.Close()
	for i := range jobCount {
		_, err := first.(store.Jobs).Jobs().Change(ctx, jobName(i), job.Define(jobName(i), definitionOf(start, i)))
		b.check(err, "adding a job")
	}
	for n := range jobInstances {
		st, err := open.Open(ctx, p.url, open.Options{})
		b.check(err, "opening %s", p.url)
		keeper, err := lease.NewKeeper(lease.KeeperConfig{Store: st, Roster: st, Instance: lease.NewInstance(fmt.Sprint("i", n), "")})
		b.check(err, "a keeper")
		cfg := job.Config{Keeper: keeper, Store: st.(store.Jobs).Jobs(), Logger: slog.New(offered)}
		for i := range jobCount {
			work := func(_ context.Context, t job.Task) error { s.note(t.Job, t.Scheduled); return nil }
			cfg.Offers = append(cfg.Offers, job.Offer{Name: jobName(i), Work: work, Definition: definitionOf(start, i)})
		}
		all.Go(func() { _ = keeper.Run(ctx) })
		all.Go(func() {
			defer st.Close()
			if err := job.Serve(ctx, cfg); ctx.Err() == nil {
				b.Fatalf("bench: serving jobs: %v", err)
			}
		})
	}
	<-offered.done
	time.Sleep(20 * time.Second) // what came due meanwhile has run then
	s.measure(b, r, p.kind, jobsDue(start))
}

// countOffered is a log that knows when all instances offer all jobs.
type countOffered struct {
	n    atomic.Int64
	done chan struct{}
}

// Enabled implements [slog.Handler].
func (c *countOffered) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

// Handle implements [slog.Handler].
func (c *countOffered) Handle(_ context.Context, r slog.Record) error {
	switch {
	case r.Message == "job offered" && c.n.Add(1) == jobInstances*jobCount:
		close(c.done)
	case r.Level >= slog.LevelWarn:
		r.Attrs(func(a slog.Attr) bool { fmt.Fprint(os.Stderr, a.Key, "=", a.Value, " "); return true })
		fmt.Fprintln(os.Stderr, r.Message)
	}
	return nil
}

// WithAttrs implements [slog.Handler].
func (c *countOffered) WithAttrs([]slog.Attr) slog.Handler { return c }

// WithGroup implements [slog.Handler].
func (c *countOffered) WithGroup(string) slog.Handler { return c }

// periodicJob is a job of River that tells when it was meant.
type periodicJob struct {
	N  int       `json:"n"`
	At time.Time `json:"at"`
}

func (periodicJob) Kind() string { return "periodic" }

type periodicWorker struct {
	river.WorkerDefaults[periodicJob]
	starts *jobStarts
}

func (w *periodicWorker) Work(_ context.Context, j *river.Job[periodicJob]) error {
	w.starts.note(jobName(j.Args.N), j.Args.At)
	return nil
}

// anchored is River's schedule of a job: every period from an anchor.
type anchored struct{ at time.Time }

func (a anchored) Next(after time.Time) time.Time {
	next := a.at
	if n := after.Sub(a.at); n >= 0 {
		next = a.at.Add((n/jobPeriod + 1) * jobPeriod)
	}
	return next
}

func riverJobs(ctx context.Context, b *bed, _ options, r *Report) {
	p, start, s := startOne(b, "postgres"), time.Now(), &jobStarts{}
	var stops []func()
	defer func() {
		for _, stop := range stops {
			stop()
		}
	}()
	for n := range jobInstances {
		cfg, err := pgxpool.ParseConfig(p.url)
		b.check(err, "River")
		cfg.MaxConns = 8 // ten of them stay below max_connections
		pool, err := pgxpool.NewWithConfig(ctx, cfg)
		b.check(err, "River")
		driver := riverpgxv5.New(pool)
		if n == 0 {
			migrator, err := rivermigrate.New(driver, nil)
			if err == nil {
				_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
			}
			b.check(err, "making River's tables")
		}
		workers := river.NewWorkers()
		river.AddWorker(workers, &periodicWorker{starts: s})
		var periodic []*river.PeriodicJob
		for i := range jobCount {
			schedule := anchored{jobAnchor(start, i)}
			periodic = append(periodic, river.NewPeriodicJob(schedule, func() (river.JobArgs, *river.InsertOpts) {
				return periodicJob{N: i, At: schedule.Next(time.Now().Add(-jobPeriod / 2))}, nil
			}, nil))
		}
		client, err := river.NewClient(driver, &river.Config{
			FetchCooldown: river.FetchCooldownMin, FetchPollInterval: river.FetchPollIntervalMin,
			Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 100}}, Workers: workers, PeriodicJobs: periodic,
		})
		b.check(err, "River")
		b.check(client.Start(ctx), "starting River")
		stops = append(stops, func() { _ = client.Stop(context.WithoutCancel(ctx)); pool.Close() })
	}
	time.Sleep(20 * time.Second) // it elects a leader meanwhile
	s.measure(b, r, "River", jobsDue(start))
}

// setLocker is the lock that gocron's users have on Redis: SET NX with an end.
type setLocker struct{ client *redis.Client }

type setLock struct {
	client *redis.Client
	key    string
}

// Lock implements [gocron.Locker].
func (l setLocker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	ok, err := l.client.SetNX(ctx, "gocron:"+key, "1", 5*time.Second).Result()
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, errors.New("locked")
	}
	return setLock{l.client, "gocron:" + key}, nil
}

// Unlock implements [gocron.Lock].
func (l setLock) Unlock(ctx context.Context) error { return l.client.Del(ctx, l.key).Err() }

func gocronJobs(_ context.Context, b *bed, _ options, r *Report) {
	p, start, s := startOne(b, "redis"), time.Now(), &jobStarts{}
	options, err := redis.ParseURL(p.url)
	b.check(err, "gocron's lock")
	var schedulers []gocron.Scheduler
	for range jobInstances {
		client := redis.NewClient(options)
		b.Cleanup(func() { _ = client.Close() })
		scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(setLocker{client}))
		b.check(err, "gocron")
		b.Cleanup(func() { _ = scheduler.Shutdown() })
		schedulers = append(schedulers, scheduler)
		for i := range jobCount {
			schedule := anchored{jobAnchor(start, i)}
			task := func() { s.note(jobName(i), schedule.Next(time.Now().Add(-jobPeriod/2))) }
			_, err := scheduler.NewJob(gocron.DurationJob(jobPeriod), gocron.NewTask(task), gocron.WithName(jobName(i)),
				gocron.WithStartAt(gocron.WithStartDateTimePast(schedule.at)))
			b.check(err, "gocron's job")
		}
	}
	for _, scheduler := range schedulers { // once all of them are made, which takes minutes
		scheduler.Start()
	}
	time.Sleep(20 * time.Second)
	s.measure(b, r, "gocron", jobsDue(start))
}
