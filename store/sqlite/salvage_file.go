package sqlite

import (
	"context"
	"errors"
	"io"
	"os"
)

// copyBlock is how much of a file is copied at once; a block that the disk cannot read becomes zeros.
const copyBlock = 64 << 10

// copyReadable copies a file, and returns how many bytes of it the disk could not read.
func copyReadable(ctx context.Context, from, to string) (unreadable int64, err error) {
	in, err := os.Open(from)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return 0, err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	block := make([]byte, copyBlock)
	for at := int64(0); at < info.Size() && err == nil; at += copyBlock {
		clear(block)
		want := min(copyBlock, info.Size()-at)
		if n, failed := in.ReadAt(block[:want], at); failed != nil && !errors.Is(failed, io.EOF) {
			unreadable += want - int64(n)
		}
		if _, err = out.WriteAt(block[:want], at); err == nil {
			err = ctx.Err()
		}
	}
	return unreadable, errors.Join(err, out.Close())
}
