//go:build linux

package fault_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
)

// jobPatient is a timing whose sessions outlast a busy machine.
var jobPatient = lease.Timing{Interval: time.Second, Timeout: 15 * time.Second}

// jobStoreDown has the store down while three times pass, and what each rule for missed times makes of them. The clock of the store
// is stepped meanwhile, so that they are minutes apart and the latest is past what "skip" takes for on time.
func jobStoreDown(t *testing.T, p fault.Programs, db fault.Database) {
	anchor := time.Now().Add(-5 * time.Minute).UTC().Format(time.RFC3339)
	var all []*fault.Jobs
	for _, rule := range []job.Missed{job.MissedOne, job.MissedSkip, job.MissedAll} {
		j := fault.NewJobs(t, fault.JobsConfig{Programs: p, Database: db, Name: string(rule), Stepped: true, Timing: jobPatient,
			Options: []string{"--schedule", "every 10m", "--anchor", anchor, "--missed", string(rule)}, Worker: []string{"-for", "100ms"}})
		j.Start("a")
		j.Start("b")
		all = append(all, j)
	}
	for _, j := range all {
		j.Await("it is offered", patience, func(at job.Job, _ []job.Run) bool { return !at.Next.IsZero() })
	}
	db.Server.Kill()
	db.Server.Step(t, 28*time.Minute) // the times are in 5, 15 and 25
	all[0].Pass(2 * jobPatient.Interval)
	db.Server.Start(t)
	missed := map[job.Missed]int64{job.MissedOne: 2, job.MissedSkip: 3, job.MissedAll: 0}
	for _, j := range all {
		at, _ := j.Await("all three times are decided about", patience, func(at job.Job, _ []job.Run) bool {
			n := int64(0)
			for _, ended := range at.Ended {
				n += ended
			}
			return n >= 3 && len(at.Open) == 0
		})
		if n := missed[job.Missed(j.Name)]; at.Ended[job.MissedRun] != n || at.Ended[job.Succeeded]+at.Ended[job.Lost] != 3-n {
			t.Errorf("missed %s: %v; want %d of 3 missed, and the others run", j.Name, at.Ended, n)
		}
		j.Finish()
	}
}

// jobRestored puts the store back from a backup that was made before the last time, at which the job has run. Then it runs again for
// that time, unless the times since the backup are skipped by a pause before instances start.
func jobRestored(t *testing.T, p fault.Programs, db fault.Database, paused bool) {
	copied := filepath.Join(t.TempDir(), "backup.db")
	j := ranSinceBackup(t, p, db, copied)
	file := strings.TrimPrefix(db.URL, "sqlite:")
	for _, part := range []string{file, file + "-wal", file + "-shm"} {
		if err := os.Remove(part); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	if err := os.Rename(copied, file); err != nil {
		t.Fatal(err)
	}
	if paused {
		j.Understudy("job", "pause", j.Name)
		j.Understudy("job", "resume", j.Name)
	}
	j.Since = time.Now()
	j.Start("a")
	j.Start("b")
	j.Await("the time is decided about again", patience, func(at job.Job, _ []job.Run) bool {
		return !at.Decided.IsZero() && len(at.Open) == 0
	})
	if v := j.Finish(); !paused && v.Starts != 1 || paused && v.Starts != 0 {
		t.Errorf("%d starts since the restore", v.Starts)
	}
}

// ranSinceBackup is a job that has run once since a backup of its store was made, and of which no host is left.
func ranSinceBackup(t *testing.T, p fault.Programs, db fault.Database, backup string) *fault.Jobs {
	for lead := 4 * time.Second; ; lead *= 2 { // a busy machine makes its backups later
		anchor := time.Now().Add(lead).Truncate(time.Second)
		j := fault.NewJobs(t, fault.JobsConfig{Programs: p, Database: db, Name: "in " + lead.String(), Timing: jobPatient, Worker: []string{"-for", "100ms"},
			Options: []string{"--schedule", "every 1h", "--anchor", anchor.UTC().Format(time.RFC3339)}})
		j.Start("a")
		j.Start("b")
		j.Await("it is offered", patience, func(at job.Job, _ []job.Run) bool { return at.Version > 0 })
		_ = os.Remove(backup)
		backUp(t, strings.TrimPrefix(db.URL, "sqlite:"), backup)
		at, _, err := j.Job()
		if err != nil {
			t.Fatal(err)
		}
		if at.Next.Equal(anchor) && at.Decided.IsZero() {
			j.Await("it has run", patience, func(at job.Job, _ []job.Run) bool { return !at.Decided.IsZero() && len(at.Open) == 0 })
		}
		for _, n := range j.Living() {
			n.Stop(patience)
		}
		j.Close()
		if at.Next.Equal(anchor) && at.Decided.IsZero() {
			return j
		}
	}
}

// jobNobodyLeft kills the only host of a job in its run: a host of another job on the store records it as lost, and raises its alarm.
func jobNobodyLeft(t *testing.T, p fault.Programs, db fault.Database) {
	j := fault.NewJobs(t, fault.JobsConfig{Programs: p, Database: db})
	other := fault.NewJobs(t, fault.JobsConfig{Programs: p, Database: db, Name: "other", Options: []string{"--schedule", "@yearly"}})
	other.Start("b")
	a, _ := jobTrials{}.offer(t, j, "a")
	j.Await("it runs", patience, func(job.Job, []job.Run) bool { return j.Last().Term > 0 })
	a.KillHost()
	j.Await("it is lost", job.OverdueAfter+patience, func(at job.Job, _ []job.Run) bool { return at.Alarm.Reason == job.Lost && len(at.Open) == 0 })
	j.Finish()
	other.Finish()
}

// backUp copies an SQLite store as the docs say.
func backUp(t *testing.T, from, to string) {
	t.Helper()
	db, err := sql.Open("sqlite", from+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := db.ExecContext(ctx, "VACUUM INTO '"+to+"'"); err != nil {
		t.Fatal(err)
	}
}

// jobDeaf has a program that ignores SIGTERM: it ends at its deadline all the same, and before another starts.
func jobDeaf(t *testing.T, p fault.Programs, db fault.Database) {
	j := fault.NewJobs(t, fault.JobsConfig{Programs: p, Database: db,
		Options: []string{"--schedule", "every 2s", "--deadline", "1s", "--overlap", "queue"}, Worker: []string{"-deaf"}})
	j.Start("a")
	j.Start("b")
	j.Await("two runs end at their deadline", 2*j.Bound(), func(at job.Job, _ []job.Run) bool { return at.Ended[job.TimedOut] >= 2 })
	j.Finish()
}

// jobLoud has a program that writes a gigabyte, or a quarter of that: the guard keeps the end of it, and no more in memory.
func jobLoud(t *testing.T, p fault.Programs, db fault.Database) {
	bytes := int64(256 << 20)
	if prove {
		bytes = 1 << 30
	}
	j := fault.NewJobs(t, fault.JobsConfig{Programs: p, Database: db, Quiet: true, Timing: jobPatient,
		Options: []string{"--schedule", "every 2s"}, Worker: []string{"-babble", strconv.FormatInt(bytes, 10), "-for", "1ms", "-nested=false"}})
	n := j.Start("a")
	_, runs := j.Await("a run succeeds", 3*patience, func(at job.Job, _ []job.Run) bool { return at.Ended[job.Succeeded] > 0 })
	most := peakMemory(t, n.PID())
	first := runs[slices.IndexFunc(runs, func(r job.Run) bool { return r.State == job.Succeeded })]
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	o, err := j.Table().Output(ctx, job.RunKey{Job: j.Name, Scheduled: first.Scheduled})
	if err != nil {
		t.Fatal(err)
	}
	if last := fmt.Sprintf("%063d\n", bytes/64-1); o.Total != bytes || len(o.Tail) != job.MaxTail || !strings.HasSuffix(string(o.Tail), last) {
		t.Errorf("%d bytes in all, %d kept, of which the last are %q", o.Total, len(o.Tail), o.Tail[max(0, len(o.Tail)-64):])
	}
	t.Logf("the guard had at most %d MiB in memory", most>>20)
	if most > 128<<20 {
		t.Error("that grows with the output")
	}
	j.Finish()
}

// peakMemory is the most that a process ever had in memory, in bytes.
func peakMemory(t *testing.T, pid int) (bytes int64) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscan(rest, &bytes); err != nil {
		t.Fatal(err)
	}
	return bytes << 10
}

// jobDiskFull fills the disk of the store over due times. Whether it can be written to then is the file system's luck.
func jobDiskFull(t *testing.T, p fault.Programs, _ fault.Database) {
	disk := realserver.SmallDisk(t, "2m")
	j := jobsOf(t, p, fault.Database{URL: "sqlite:" + filepath.Join(disk, "store.db")})
	a := j.Start("a")
	j.Start("b")
	j.Succeeds()
	free := realserver.FillDisk(t, disk)
	j.Pass(2 * j.Cluster.Timing.Timeout)
	a.KillHost()
	j.Pass(2 * j.Cluster.Timing.Timeout)
	free()
	j.Start("a")
	j.Succeeds()
	j.Succeeds()
	j.Finish()
}

// jobTwelve starts twelve hosts at once, with a new store.
func jobTwelve(t *testing.T, p fault.Programs, db fault.Database) {
	j := jobsOf(t, p, db)
	for i := range 12 {
		j.Start(fmt.Sprint("n", i))
	}
	j.Succeeds()
	j.Succeeds()
	j.Finish()
}

// jobFrozen stops a whole host around a due time for longer than its session: another runs the job meanwhile, and what was stopped
// starts nothing when it continues. That its program goes on until the watchers are awake again cannot be helped.
func jobFrozen(t *testing.T, p fault.Programs, db fault.Database) {
	rounds := 1
	if prove {
		rounds = 20
	}
	j := jobsOf(t, p, db)
	j.Frozen = true
	j.Start("a")
	j.Start("b")
	j.Succeeds()
	seed := givenSeed()
	t.Logf("UNDERSTUDY_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 5))
	for i := range rounds {
		at, now, err := j.Job()
		if err != nil {
			t.Fatal(err)
		}
		j.Pass(at.Next.Sub(now) + time.Duration(random.Int64N(int64(jobTakes))) - 50*time.Millisecond)
		n := j.Living()[i%2]
		for _, one := range j.Living() {
			if len(one.Watchers()) > 0 {
				n = one
			}
		}
		n.PauseHost()
		j.Succeeds()
		j.Pass(j.Cluster.Timing.Timeout)
		n.ResumeHost()
		j.Succeeds()
	}
	j.Finish()
}

// jobOnce kills the guard of a run of a date, which comes once: with the next host it is lost, or repeated if that was declared safe.
func jobOnce(t *testing.T, p fault.Programs, db fault.Database, safe bool) {
	j := fault.NewJobs(t, fault.JobsConfig{Programs: p, Database: db})
	trials := jobTrials{safe: safe}
	a, due := trials.offer(t, j, "a")
	j.Await("it runs", patience, func(job.Job, []job.Run) bool { return j.Last().Term > 0 })
	a.Signal(syscall.SIGKILL)
	j.NothingLeft()
	j.Start("b", trials.options(due)...)
	if safe {
		j.Await("it runs again", patience, func(job.Job, []job.Run) bool { return len(j.Evidence().Starts) > 1 })
	} else {
		j.Await("it is lost", patience, func(at job.Job, _ []job.Run) bool { return at.Ended[job.Lost] == 1 })
	}
	if v := j.Finish(); safe && v.Again == 0 || !safe && v.Starts != 1 {
		t.Errorf("%+v", v)
	}
}
