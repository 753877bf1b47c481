package sqlite

import (
	"path/filepath"
	"strings"
	"testing"
)

// What agents do all the time must not read a whole table, however many shards there are.
func TestNothingOfShardsScans(t *testing.T) {
	s, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "store.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for name, text := range map[string]string{
		"same nodes": sameNodes, "put node": putNode, "nodes": shardNodes, "row": shardRow, "rev": shardRev, "lock": shardLock,
		"put row": putShard, "drop node": dropNode, "drop commands": dropCommands, "put lock": putLock, "drop lock": dropLock,
		"forget commands": forgetCommands, "put command": putCommand, "cut commands": cutCommands, "has command": hasCommand,
		"take command": takeCommand, "wakings": wakeShard, "names": shardNames,
	} {
		for _, step := range plan(t, s, text) {
			if strings.HasPrefix(step, "SCAN understudy_") || strings.Contains(step, "TEMP B-TREE") {
				t.Errorf("%s: %s", name, step)
			}
		}
	}
}
