package main

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/internal/strictyaml"
)

// TestSecondSignal: signals that come together are one, as those of timeout(1).
func TestSecondSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals, done, ended := make(chan os.Signal, 4), make(chan error, 1), make(chan error, 1)
		go func() { ended <- awaitEnd(done, signals) }()
		signals <- syscall.SIGTERM
		signals <- syscall.SIGCONT
		time.Sleep(900 * time.Millisecond)
		signals <- syscall.SIGTERM
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("signals within a second ended it: %v", err)
		default:
		}
		time.Sleep(200 * time.Millisecond)
		signals <- syscall.SIGTERM
		if err := <-ended; !errors.Is(err, errAtOnce) {
			t.Errorf("a second signal: %v", err)
		}
		go func() { ended <- awaitEnd(done, signals) }()
		signals <- syscall.SIGTERM
		done <- nil
		if err := <-ended; err != nil {
			t.Errorf("it has ended in order: %v", err)
		}
	})
}

func TestFlagsSayWhatTheFileSays(t *testing.T) {
	var flags queueRunFlags
	c := &cobra.Command{}
	flags.register(c)
	if err := c.ParseFlags(strings.Fields("--webhook http://x --at-most-once --status-url http://x/{id} --token-file t --ca-file c --secret-file s --name web-1 " +
		"--front 127.0.0.1:9 --dialect grid --first-window 1s --second-window 1m --submit-timeout 10s")); err != nil {
		t.Fatal(err)
	}
	if err := flags.complete([]string{"orders"}); err != nil {
		t.Fatal(err)
	}
	const text = `queues: [{queue: orders, first_window: 1s, second_window: 1m, submit_timeout: 10s, front: {listen: '127.0.0.1:9', dialect: grid},
  webhook: {url: 'http://x', ca_file: c, token_file: t, status_url: 'http://x/{id}', secret_file: s, at_most_once: true}}]`
	file := &settings.Server{}
	if err := settings.Parse([]byte(text), file); err != nil {
		t.Fatal(err)
	}
	strictyaml.ApplyDefaults(file)
	if diff := cmp.Diff(file.Queues[0], flags.Queue); diff != "" {
		t.Errorf("the file (-) and the flags (+) differ:\n%s", diff)
	}
}
