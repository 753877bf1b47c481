package redis_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/job/jobtest"
)

func TestJobs(t *testing.T) {
	server := realserver.Redis(t, realserver.RedisOptions{})
	jobtest.TestStore(t, func(t *testing.T) jobtest.Subject {
		var skew atomic.Int64
		prefix := prefixOf(t)
		first, second := open(t, server.URL(), prefix), open(t, server.URL(), prefix)
		first.SetSkew(func() time.Duration { return time.Duration(skew.Load()) })
		second.SetSkew(func() time.Duration { return time.Duration(skew.Load()) })
		return jobtest.Subject{Jobs: first.Jobs(), Other: second.Jobs(), History: first, Advance: func(d time.Duration) { skew.Add(int64(d)) }}
	})
}

// In the server's locale, by which Lua compares text, a comes before B and job_1 before job2: pages go by bytes nonetheless.
func TestJobsInALocale(t *testing.T) {
	realserver.SkipIfShort(t, "redis-server")
	t.Setenv("LOCPATH", makeLocale(t, "letters"))
	t.Setenv("LC_ALL", "")
	t.Setenv("LC_COLLATE", "letters")
	server := realserver.Redis(t, realserver.RedisOptions{})
	if said, err := server.Do("EVAL", "return tostring('a' < 'B' and 'job_1' < 'job2')", "0"); said != "true" {
		t.Skipf("this redis-server knows no locale but C: %q, %v", said, err)
	}
	jobs := open(t, server.URL(), "").Jobs()
	want := []string{"B", "a", "job2", "job_1"}
	for _, name := range want {
		if _, err := jobs.Change(t.Context(), name, job.Define(name, job.Definition{Schedule: "every 1h"})); err != nil {
			t.Fatal(err)
		}
	}
	for _, within := range []time.Duration{0, 2 * time.Hour} {
		var got []string
		for after := ""; len(got) <= len(want); {
			page, _, err := jobs.List(t.Context(), job.Query{After: after, DueWithin: within, Limit: 1})
			if err != nil {
				t.Fatal(err)
			}
			if len(page) == 0 {
				break
			}
			after = page[0].Name
			got = append(got, after)
		}
		if !slices.Equal(got, want) {
			t.Errorf("due within %v: %q, want %q", within, got, want)
		}
	}
}

// makeLocale returns a folder with a small locale of that name, which a C library finds by LOCPATH.
func makeLocale(t *testing.T, name string) (dir string) {
	program, err := exec.LookPath("localedef")
	if err != nil {
		t.Skip("localedef is not installed")
	}
	dir = t.TempDir()
	source := filepath.Join(dir, "source")
	var text strings.Builder
	text.WriteString("comment_char %\nescape_char /\nLC_COLLATE\norder_start forward\n")
	for _, c := range "_aBjob21" {
		text.WriteString(fmt.Sprintf("<U%04X>\n", c))
	}
	if err := os.WriteFile(source, []byte(text.String()+"order_end\nEND LC_COLLATE\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// It fails for what else a locale has. The server's answer shows whether this one is there.
	_ = exec.Command(program, "-c", "-i", source, "-f", "ANSI_X3.4-1968", filepath.Join(dir, name)).Run()
	return dir
}
