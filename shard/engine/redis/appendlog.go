package redis

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/engine/wire"
)

var _ shard.LogReader = (*engines)(nil)

// maxManifest bounds what is read of a log's manifest, in bytes.
const maxManifest = 1 << 16

// logPath is that of the manifest of the server's append-only log, "" if it keeps none. Before 7.0 there is no manifest,
// and a rewrite makes the log shorter.
func logPath(items []wire.Reply) string {
	s := settings(items)
	if s["appendonly"] != "yes" || s["dir"] == "" || s["appenddirname"] == "" || s["appendfilename"] == "" {
		return ""
	}
	return filepath.Join(s["dir"], s["appenddirname"], s["appendfilename"]+".manifest")
}

// ReadLog implements [shard.LogReader], given a manifest, with lines such as "file appendonly.aof.2.incr.aof seq 2 type i".
func (*engines) ReadLog(path string) (l shard.AppendLog, err error) {
	f, err := os.Open(path)
	if err != nil {
		return l, err
	}
	defer f.Close()
	name := ""
	lines := bufio.NewScanner(io.LimitReader(f, maxManifest))
	for lines.Scan() {
		w := strings.Fields(lines.Text())
		if len(w) != 6 || w[0] != "file" || w[2] != "seq" || w[4] != "type" || w[5] != "i" {
			continue
		}
		if n, err := strconv.ParseInt(w[3], 10, 64); err == nil && n > l.File {
			l.File, name = n, w[1]
		}
	}
	if err := lines.Err(); err != nil {
		return shard.AppendLog{}, err
	}
	if name == "" || name != filepath.Base(name) {
		return shard.AppendLog{}, fmt.Errorf("%s: %w", path, errors.New("no file of the log is named"))
	}
	info, err := os.Stat(filepath.Join(filepath.Dir(path), name))
	if err != nil {
		return shard.AppendLog{}, err
	}
	l.Size = info.Size()
	return l, nil
}
