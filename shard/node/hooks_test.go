//go:build unix

package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

func TestHooks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out")
	h := &Hooks{Argv: []string{"sh", "-c", `unset UNDERSTUDY_REQUIRE_BACKENDS UNDERSTUDY_PROVE; env | grep ^UNDERSTUDY_ | sort > "$0"`, file}}
	call := shard.HookCall{Event: shard.OnPromote, Shard: "s", Node: "10.0.0.1:6379", Role: shard.Primary, Epoch: 7, From: "a", To: "b"}
	for _, when := range []string{"before", "after"} {
		if when == "before" {
			if err := h.Before(t.Context(), call); err != nil {
				t.Error(err)
			}
		} else {
			h.After(t.Context(), call)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{
			"UNDERSTUDY_EPOCH=7", "UNDERSTUDY_EVENT=promote", "UNDERSTUDY_FROM=a", "UNDERSTUDY_NODE=10.0.0.1:6379",
			"UNDERSTUDY_ROLE=primary", "UNDERSTUDY_SHARD=s", "UNDERSTUDY_TO=b", "UNDERSTUDY_WHEN=" + when,
		}
		if diff := cmp.Diff(want, strings.Fields(string(b))); diff != "" {
			t.Errorf("%s: -want +got:\n%s", when, diff)
		}
	}
}

func TestHookFails(t *testing.T) {
	for name, h := range map[string]*Hooks{
		"exit":       {Argv: []string{"sh", "-c", "head -c 100000 /dev/zero; echo no, not now; exit 1"}},
		"no program": {Argv: []string{"/no/such/program"}},
		"none":       {},
		"slow":       {Argv: []string{"sh", "-c", "echo no, not now; sleep 1000 & sleep 1000"}, Timeout: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := h.Before(t.Context(), shard.HookCall{})
			if err == nil {
				t.Fatal("no error")
			}
			if said := strings.Contains(err.Error(), "no, not now"); said != (name == "exit" || name == "slow") || len(err.Error()) > 5*hookOutput {
				t.Errorf("the error is %.200q", err)
			}
			if slow := errors.Is(err, context.DeadlineExceeded); slow != (name == "slow") {
				t.Errorf("the error is %v", err)
			}
			if invalid := errors.Is(err, lease.ErrInvalid); invalid != (name == "none") {
				t.Errorf("the error is %v", err)
			}
		})
	}
}
