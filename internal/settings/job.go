package settings

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/strictyaml"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/job"
)

// Job is a job that an instance offers, from the file or from flags: a program, or a message to a queue.
type Job struct {
	Job       string        `yaml:"job" flag:"-" help:"name of the job"`
	Schedule  string        `yaml:"schedule" help:"'WHEN': a crontab, a period or a date, for instance '30 2 * * *', 'every 90m' or '2026-12-24 18:00'"`
	Zone      string        `yaml:"zone" help:"time 'ZONE' of the schedule, such as Europe/Berlin (default UTC)"`
	Anchor    string        `yaml:"anchor" help:"'TIME' from which a period is counted, in RFC 3339 (default: when the job was added)"`
	Command   []string      `yaml:"command" flag:"-" help:"the program and its arguments, run without a shell"`
	Message   *JobMessage   `yaml:"message" help:"add this message to a queue instead: one for each scheduled time"`
	Jitter    time.Duration `yaml:"jitter" help:"delay each run by at most this, the same on every instance"`
	Deadline  time.Duration `yaml:"deadline" help:"stop a run that takes longer (default: never)"`
	Overlap   string        `yaml:"overlap" default:"forbid" help:"when its time comes while it runs: forbid (skip the new run), queue or replace (stop the old one)"`
	Missed    string        `yaml:"missed" default:"one" help:"of scheduled times at which no instance was up, run: one (the latest), skip (none more than a minute late) or all"`
	Retry     int           `yaml:"retry" help:"repeat a run that failed up to 'N' times; needs --retry-safe (retry_safe)"`
	RetrySafe bool          `yaml:"retry_safe" help:"running the program twice for one time does no harm: lost runs are repeated, too"`
	Alarm     string        `yaml:"alarm" secret:"url" help:"POST an alarm to this 'URL' when a run failed, timed out, was lost or missed, or none starts, and its end with the next good run"`
	With      string        `yaml:"with" help:"run only where an instance of the same name holds this 'ROLE'"`
	StopGrace time.Duration `yaml:"stop_grace" flag:"-" default:"1s" help:"time between SIGTERM and SIGKILL; T ≥ 3·I + stop grace"`
	PassStore bool          `yaml:"pass_store" flag:"-" help:"leave UNDERSTUDY_STORE and UNDERSTUDY_TOKEN in the program's environment"`
}

// JobMessage is what a job adds to a queue.
type JobMessage struct {
	Queue       string            `yaml:"queue" help:"name of the queue; needs SQLite or PostgreSQL"`
	Key         string            `yaml:"key" help:"the message's key (default: the job's name)"`
	Payload     string            `yaml:"payload" help:"the message (default: the job and its scheduled time, in JSON)"`
	ContentType string            `yaml:"content_type" help:"of the payload"`
	Headers     map[string]string `yaml:"headers" secret:"all" help:"headers that go to the target with it"`
}

// messageRetries is how often a message is tried to be added. That is safe: a message has its run's ID.
const messageRetries = 20

// Definition is what the store keeps of the job.
func (j *Job) Definition() (job.Definition, error) {
	d := job.Definition{
		Schedule: j.Schedule, JitterMS: j.Jitter.Milliseconds(), DeadlineMS: j.Deadline.Milliseconds(),
		Overlap: job.Overlap(j.Overlap), Missed: job.Missed(j.Missed), Retries: j.Retry, AlarmURL: j.Alarm,
	}
	switch {
	case strings.TrimSpace(j.Schedule) == "":
		return d, usererr.Errorf("schedule is missing; say when, for instance '30 2 * * *' or 'every 90m'")
	case j.Message != nil:
		d.Retries = messageRetries
	case j.Retry > 0 && !j.RetrySafe:
		return d, usererr.Errorf("retry runs the program again for the same time: add --retry-safe (retry_safe: true) if that does no harm")
	case j.RetrySafe && j.Retry == 0:
		d.Retries = 1
	}
	if j.Zone != "" {
		d.Schedule = "TZ=" + j.Zone + " " + j.Schedule
	}
	if j.Anchor != "" {
		var err error
		if d.Anchor, err = time.Parse(time.RFC3339, j.Anchor); err != nil {
			return d, usererr.Errorf("anchor %q: write a time like 2026-12-24T18:00:00Z", j.Anchor)
		}
	}
	return d, d.Validate()
}

// Of is the message of the run of a scheduled time. Its ID says which, so that it is in the queue once however often it is added.
func (m *JobMessage) Of(name string, scheduled time.Time) (dispatch.Message, error) {
	at := scheduled.UTC().Format(time.RFC3339Nano)
	out := dispatch.Message{
		Queue: m.Queue, Key: m.Key, ID: name + " " + at, ContentType: m.ContentType, Payload: []byte(m.Payload), Headers: m.Headers,
	}
	if out.Key == "" {
		out.Key = name
	}
	if m.Payload == "" {
		payload, err := json.Marshal(map[string]string{"job": name, "scheduled": at})
		if err != nil {
			return out, fmt.Errorf("the message of job %q: %w", name, err)
		}
		out.Payload, out.ContentType = payload, "application/json"
	}
	out = out.WithDefaults()
	return out, out.Validate()
}

// check refuses what can be refused without a store.
func (j *Job) check() error {
	if err := job.ValidateName(j.Job); err != nil {
		return err
	}
	if _, err := j.Definition(); err != nil {
		return err
	}
	switch {
	case (len(j.Command) > 0) == (j.Message != nil):
		return usererr.Errorf("name one of command and message")
	case len(j.Command) > 0 && j.Command[0] == "":
		return usererr.Errorf("the command names no program")
	case j.Message != nil && (j.Retry > 0 || j.RetrySafe):
		return usererr.Errorf("retry and retry_safe belong to command: a message is added until the store has it, and once")
	case j.With != "":
		if err := elect.ValidateRole(j.With); err != nil {
			return fmt.Errorf("with: %w", err)
		}
	}
	if j.Message != nil {
		longest := time.Date(2026, 12, 31, 23, 59, 59, int(999*time.Millisecond), time.UTC)
		if _, err := j.Message.Of(j.Job, longest); err != nil {
			return fmt.Errorf("message: %w", err)
		}
	}
	return nil
}

func (c *Server) checkJobs(f *strictyaml.Findings) {
	seen := map[string]bool{}
	for i := range c.Jobs {
		j := &c.Jobs[i]
		err := j.check()
		switch {
		case err != nil:
		case seen[j.Job]:
			err = usererr.Errorf("it appears twice")
		default:
			err = c.Timing().Validate(j.StopGrace)
		}
		if err != nil {
			err = fmt.Errorf("job %q: %w", j.Job, err)
		}
		seen[j.Job] = true
		f.At(fmt.Sprintf("jobs[%d]", i), err)
	}
}
