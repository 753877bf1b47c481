package main

import (
	"context"
	"io"
	"os"
	"sync"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/internal/usererr"
)

// input is the file that is named, or standard input. Neither opening nor reading it outlasts the command's context.
func input(c *cobra.Command, args []string) (io.ReadCloser, error) {
	if len(args) == 0 || args[0] == "-" {
		return io.NopCloser(standardInput(c)), nil
	}
	type opened struct {
		*os.File
		err error
	}
	done := make(chan opened, 1)
	go func() { // of a FIFO it takes until something writes to it
		f, err := os.Open(args[0])
		done <- opened{f, err}
	}()
	select {
	case f := <-done:
		if f.err != nil {
			return nil, usererr.Errorf("%v", f.err)
		}
		return struct {
			io.Reader
			io.Closer
		}{untilDone(c.Context(), f), f}, nil
	case <-c.Context().Done():
		return nil, context.Cause(c.Context())
	}
}

// standardInput is that of a command until its context ends.
func standardInput(c *cobra.Command) io.Reader {
	return untilDone(c.Context(), c.InOrStdin())
}

// untilDone returns a reader of in whose Read returns the cause of ctx once that has ended: a read of a terminal or a pipe would wait
// on, through every signal that this process catches. What it waits for is then left to the end of the process.
func untilDone(ctx context.Context, in io.Reader) io.Reader {
	started := sync.OnceValue(func() io.Reader { // not before it is read: nobody else's input is taken
		out, to := io.Pipe()
		context.AfterFunc(ctx, func() { _ = to.CloseWithError(context.Cause(ctx)) })
		go func() {
			_, err := io.Copy(to, in)
			_ = to.CloseWithError(err)
		}()
		return out
	})
	return readerFunc(func(p []byte) (int, error) { return started().Read(p) })
}

type readerFunc func([]byte) (int, error)

// Read implements [io.Reader].
func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
