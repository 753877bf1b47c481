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

// buildProgram builds understudy as make build does.
func buildProgram(ctx context.Context, b *bed) string {
	program := filepath.Join(b.TempDir(), "understudy")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "./cmd/understudy")
	build.Dir = ".."
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	b.check(err, "building understudy: %s", out)
	return program
}

// footprint builds the program as it is released, and looks at what an idle
// server of it needs.
func footprint(ctx context.Context, b *bed, o options, r *Report) {
	program := buildProgram(ctx, b)
	file, err := os.Stat(program)
	b.check(err, "measuring understudy")
	r.add(Figure{Section: "footprint", Subject: "binary", Name: "size", Value: float64(file.Size()) / mib, Unit: "MiB", Bound: 28})

	servers := map[string]*realserver.Process{}
	for _, kind := range o.kinds {
		if kind != peerKind {
			servers[kind], _ = serve(b, program, startOne(b, kind))
		}
	}
	time.Sleep(idleFor)
	for _, kind := range o.kinds {
		if server := servers[kind]; server != nil {
			r.add(Figure{Section: "footprint", Subject: kind, Name: fmt.Sprintf("idle server, resident after %v", idleFor),
				Value: float64(residentMemory(server.Pid())) / mib, Unit: "MiB", Bound: 24})
		}
	}
}

// serve starts a server on the store and waits until it answers at the address.
func serve(b *bed, program string, p place) (_ *realserver.Process, address string) {
	address = realserver.FreeAddress(b)
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
	return proc, address
}
