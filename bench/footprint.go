package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

const (
	// idleFor is how long a server is left alone before its memory is read.
	idleFor = 20 * time.Second
	mib     = 1 << 20
)

// footprint builds the program as it is released, and looks at what an idle
// server of it needs.
func footprint(ctx context.Context, b *bed, o options, r *Report) {
	program := filepath.Join(b.TempDir(), "understudy")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "./cmd/understudy")
	build.Dir = ".."
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("bench: building understudy: %v\n%s", err, out)
	}
	file, err := os.Stat(program)
	if err != nil {
		b.Fatalf("bench: %v", err)
	}
	r.add(Figure{Section: "footprint", Subject: "binary", Name: "size", Value: float64(file.Size()) / mib, Unit: "MiB", Bound: 28})

	type server struct {
		place
		proc *realserver.Process
	}
	var servers []server
	for _, p := range startAll(b, o.kinds) {
		if p.kind == peerKind {
			servers = append(servers, server{p, nil})
			continue
		}
		servers = append(servers, server{p, serve(b, program, p)})
	}
	time.Sleep(idleFor)
	for _, s := range servers {
		f := Figure{Section: "footprint", Subject: s.kind, Name: fmt.Sprintf("idle server, resident after %v", idleFor), Unit: "MiB"}
		if s.proc == nil {
			f.Value = float64(residentMemory(s.pid)) / mib
		} else {
			f.Value, f.Bound = float64(residentMemory(s.proc.Pid()))/mib, 24
		}
		r.add(f)
	}
}

// serve starts a server on the store and waits until it answers.
func serve(b *bed, program string, p place) *realserver.Process {
	address := realserver.FreeAddress(b)
	cmd := exec.Command(program, "serve", "--store", p.url, "--listen", address)
	cmd.Dir = b.TempDir()
	proc := realserver.Start(b, cmd)
	client := http.Client{Timeout: time.Second}
	realserver.Eventually(b, 20*time.Second, "understudy serve answers", func() error {
		if proc.Exited() {
			b.Fatalf("bench: understudy serve ended: %s", proc.Output())
		}
		resp, err := client.Get("http://" + address + "/healthz")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s", address, resp.Status)
		}
		return nil
	})
	return proc
}
