package settings

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestHookConfig(t *testing.T) {
	good := Hook{Command: []string{"./notify"}}
	for name, c := range map[string]struct {
		change func(*Hook)
		want   string
	}{
		"good":       {func(*Hook) {}, ""},
		"on":         {func(h *Hook) { h.On = []string{"role", "rolls"} }, "rolls"},
		"no command": {func(h *Hook) { h.Command = nil }, "command is missing"},
		"brief":      {func(h *Hook) { h.Timeout = 1 }, "timeout"},
		"long":       {func(h *Hook) { h.Timeout = time.Duration(2 * time.Hour) }, "timeout"},
		"a place":    {func(h *Hook) { h.OnlyPrimaryOf = "a#2" }, "only_primary_of"},
		"elsewhere":  {func(h *Hook) { h.OnlyPrimaryOf = "reports" }, "not among the roles"},
	} {
		h := good
		c.change(&h)
		err := completeHooks([]Hook{h}, []string{"billing"})
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "hook 1") || !refused(err)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := completeHooks(slices.Repeat([]Hook{good}, maxHooks+1), nil); err == nil {
		t.Error("too many hooks are taken")
	}
}
