//go:build linux

package fault_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// shardTwin is an agent without one of its rules: a line of the source that is another. The scenario has to say
// what comes of it.
type shardTwin struct {
	rule, file, line, instead string
	scenario, says            string
}

var shardTwins = []shardTwin{
	{rule: "a replica that may acknowledge keeps a silent primary in its place", file: "shard/acknowledge.go",
		line: "for _, m := range v.Row.Members {\n\t\tif m.ID != v.Row.Primary {", instead: "for _, m := range v.Row.Members[:0] {\n\t\tif m.ID != v.Row.Primary {",
		scenario: "TestFaultShardNetwork/hosts/primary without agent cut off together with a replica", says: "cannot know that the primary is closed"},
	{rule: "a restarted primary is compared with its replicas", file: "shard/decide.go",
		line: `why := v.longerCopy(me); why != ""`, instead: `why := v.longerCopy(me); why != "" && false`,
		scenario: "TestFaultShard/primary's host starts again from a snapshot", says: "that both replicas had are lost"},
	{rule: "a restarted primary's log is compared with what others know of it", file: "shard/decide.go",
		line: `why := v.shorterLog(me); why != ""`, instead: `why := v.shorterLog(me); why != "" && false`,
		scenario: "TestFaultShard/primary's host starts again from a snapshot while all restart", says: "that both replicas had are lost"},
	{rule: "an empty store leaves the shard to the highest epoch", file: "shard/decide.go",
		line: "if me.Saved.Epoch == 0 {", instead: "if me.Saved.Epoch >= 0 {",
		scenario: "TestFaultShard/store comes back empty while a deposed primary returns", says: "it has diverged"},
	{rule: "a node starts closed", file: "shard/engine/redis/engine.go",
		line: `return []string{"--min-replicas-to-write"`, instead: `return nil; return []string{"--min-replicas-to-write"`,
		scenario: "TestFaultShard/W01 no fencing", says: "after it returned"},
}

// TestFaultShardTwins runs scenarios with agents that lack the rule which they are there for. Each must fail, and say why.
func TestFaultShardTwins(t *testing.T) {
	if !prove {
		t.Skip("only with UNDERSTUDY_PROVE=1")
	}
	realserver.Find(t, "redis-server")
	for _, twin := range shardTwins {
		t.Run(twin.rule, func(t *testing.T) {
			dir := t.TempDir()
			twin.build(t, dir)
			if strings.Contains(twin.scenario, "Network") {
				realserver.NeedRoot(t, "a network namespace")
			}
			var out []byte
			for range 12 { // chance has a part in it: of two nodes that may lead, the wrong one has to be first
				steps := strings.Split(strings.ReplaceAll(twin.scenario, " ", "_"), "/")
				cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+strings.Join(steps, "$/^")+"$", "-test.v", "-test.timeout=5m")
				cmd.Env = append(os.Environ(), fault.ProgramsDir+"="+dir, "UNDERSTUDY_PROVE=0")
				var err error
				if out, err = cmd.CombinedOutput(); err != nil && strings.Contains(string(out), twin.says) {
					return
				}
			}
			t.Errorf("nobody noticed:\n%s", out)
		})
	}
}

// build builds the program with the twin's line in it.
func (twin shardTwin) build(t *testing.T, dir string) {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, twin.file)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(text), twin.line) != 1 {
		t.Fatalf("%s does not have this line once: %s", twin.file, twin.line)
	}
	broken, overlay := filepath.Join(dir, "broken.go"), filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{path: broken}})
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{broken: strings.ReplaceAll(string(text), twin.line, twin.instead), overlay: string(list)} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-overlay", overlay, "-o", filepath.Join(dir, "understudy"), "./cmd/understudy")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
}
