package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/internal/strictyaml"
)

func TestFlagsSayWhatTheFileSays(t *testing.T) {
	var flags queueRunFlags
	c := &cobra.Command{}
	flags.register(c)
	if err := c.ParseFlags(strings.Fields("--webhook http://x --never-twice --status-url http://x/{id} --token-file t --ca-file c --secret-file s --name web-1 " +
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
