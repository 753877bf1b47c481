package zmtp

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// writeChunk is how much is written under one deadline, and how much may gather before
// the reader writes although more input is there.
const writeChunk = 256 << 10

// writeLapses is how many parts WriteTimeout has. A write waits for one at a time, and the other side is slow after so many
// in a row in which it took nothing. A pause of this process counts as one, however long it lasts.
const writeLapses = 10

// slowBytes is the least that the other side takes in such a part if it is not to be closed for the sake of others.
const slowBytes = writeChunk / writeLapses

// smallMessage is a message for which a part of the queue is kept free.
const smallMessage = 1 << 10

// outbox is the writing half of a connection: a queue of bytes, written by one
// goroutine at a time. That is the reader, for what was sent while it was busy, with one
// attempt that does not wait; or else a flusher, which lives until the queue is empty.
// The lock is never held across I/O.
type outbox struct {
	nc      net.Conn
	direct  directWriter
	limit   int
	timeout time.Duration
	sealer  *sealer
	budget  *Budget
	charged atomic.Int64 // of the budget
	flusher func()       // flush, made once
	dead    atomic.Bool
	much    atomic.Bool    // more than writeChunk has gathered
	lapses  atomic.Int32   // in a row
	slow    atomic.Int32   // parts of WriteTimeout in a row in which less than slowBytes was written
	running sync.WaitGroup // flushers

	mu      sync.Mutex
	queue   []byte
	spare   []byte // what was written last, to be used again
	writing int    // bytes that someone is writing and that are not written yet
	owned   bool   // someone is writing
	reading bool   // the reader will write what is queued
	sealed  bool   // no more is taken, no more flushers start
	err     error  // why the connection has ended: the first reason
	dropped int64
}

func (o *outbox) start(cfg *Config, nc net.Conn) {
	o.nc, o.limit, o.timeout, o.budget = nc, cfg.Queue, cfg.WriteTimeout, cfg.Budget
	if o.budget != nil {
		o.budget.add(o)
	}
	o.direct.start(nc)
	o.flusher = o.flush
	o.reading = true
}

// push queues a message, if there is room.
func (o *outbox) push(m Message) bool {
	size := wireSize(m, o.sealer != nil)
	o.makeRoom(size) // outside the lock: it closes connections
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sealed {
		return false
	}
	waiting, limit := len(o.queue)+o.writing, o.limit
	if size > smallMessage {
		limit -= limit / 32
	}
	if waiting > 0 && waiting+size > limit || !o.reserve(size) {
		o.dropped++
		return false
	}
	o.queue = appendMessage(o.queue, m, o.sealer)
	if len(o.queue) >= writeChunk {
		o.much.Store(true)
	}
	o.startFlusher()
	return true
}

// subscribe queues a subscription, whatever waits: without it nothing would ever come.
func (o *outbox) subscribe(prefix []byte, minor int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queue = subscribe(o.queue, prefix, minor, o.sealer)
	o.startFlusher()
	o.charge()
}

// heartbeat queues a PING or a PONG, unless more than limit waits or the budget has no room.
func (o *outbox) heartbeat(limit int, name string, data []byte) (queued bool) {
	command := appendCommand(nil, name, data)
	size := frameSize(len(command), o.sealer != nil)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sealed || len(o.queue)+o.writing > limit || !o.reserve(size) {
		return false
	}
	o.queue = appendPart(o.queue, flagCommand, command, o.sealer)
	o.startFlusher()
	return true
}

// startFlusher starts a flusher unless someone is going to write anyway. It needs the lock.
func (o *outbox) startFlusher() {
	if !o.reading {
		o.delegate()
	}
}

// delegate starts a flusher unless someone is writing. It needs the lock.
func (o *outbox) delegate() {
	if o.owned || o.sealed || len(o.queue) == 0 {
		return
	}
	o.owned = true
	o.running.Add(1)
	go o.flusher()
}

// holdWrites says that the reader will write what is queued from here on, when it rests.
func (o *outbox) holdWrites() {
	o.mu.Lock()
	o.reading = true
	o.mu.Unlock()
}

// handling reports whether the reader is in a handler, or about to be.
func (o *outbox) handling() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.reading
}

// resumeWrites writes what was queued while the reader was busy, as far as it goes without
// waiting; a flusher does the rest.
func (o *outbox) resumeWrites() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reading = false
	o.writeOnce()
	o.startFlusher()
}

// flushIfFull writes early when much has gathered.
func (o *outbox) flushIfFull() {
	if !o.much.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writeOnce()
	o.delegate()
	o.much.Store(false)
}

// writeOnce writes once, without waiting. What is left goes back to the front of the
// queue. It needs the lock and lets go of it meanwhile.
func (o *outbox) writeOnce() {
	if o.owned || o.sealed || len(o.queue) == 0 {
		return
	}
	o.owned = true
	p := o.takeQueue()
	o.mu.Unlock()
	n, err := o.direct.write(p)
	if err != nil {
		o.fail(err)
	}
	o.mu.Lock()
	o.owned = false
	if n < len(p) {
		// Rare: the socket's buffer is full.
		if n > 0 && cap(p) > keptBuffer {
			o.queue = slices.Concat(p[n:], o.queue) // not a part of p: what is written must take no memory, see writeAll
		} else {
			o.queue = append(p[n:len(p):len(p)], o.queue...)
		}
		o.writing = 0
		o.charge()
		return
	}
	o.returnBuffer(p)
}

// takeQueue hands the queue to who writes it. It needs the lock.
func (o *outbox) takeQueue() []byte {
	p := o.queue
	o.queue, o.spare = o.spare[:0], nil
	o.writing = len(p)
	return p
}

// returnBuffer returns the buffer that takeQueue gave. It needs the lock.
func (o *outbox) returnBuffer(p []byte) {
	o.writing = 0
	if cap(p) <= keptBuffer {
		o.spare = p
	}
	o.charge()
}

// flush writes until nothing waits.
func (o *outbox) flush() {
	defer o.running.Done()
	// Whoever else is about to send goes first: one write for all of them.
	runtime.Gosched()
	for {
		o.mu.Lock()
		if len(o.queue) == 0 {
			o.owned = false
			o.mu.Unlock()
			return
		}
		p := o.takeQueue()
		o.mu.Unlock()
		p, err := o.writeAll(p)
		o.mu.Lock()
		o.returnBuffer(p)
		o.mu.Unlock()
		if err != nil {
			o.fail(err)
			return // and stays the owner: nobody is to write any more
		}
	}
}

// writeAll waits for the other side for as long as it takes something. It returns the buffer if that can be used again:
// one that had to wait is given up, so that a slow reader does not keep all of it until the last byte is written.
func (o *outbox) writeAll(p []byte) ([]byte, error) {
	n, err := o.direct.write(p)
	if err != nil || n == len(p) {
		return p, err
	}
	o.wrote(n)
	whole := cap(p)
	for p = p[n:]; len(p) > 0; p = p[n:] {
		if whole > keptBuffer && len(p) < whole/2 {
			p, whole = slices.Clone(p), len(p)
		}
		if err := o.nc.SetWriteDeadline(time.Now().Add(o.timeout / writeLapses)); err != nil {
			return nil, err
		}
		n, err = o.nc.Write(p[:min(len(p), writeChunk)])
		if err != nil && n < slowBytes {
			o.slow.Add(1)
		} else {
			o.slow.Store(0)
		}
		switch {
		case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
			return nil, err
		case n > 0:
			o.wrote(n)
		case o.lapses.Add(1) == writeLapses:
			return nil, fmt.Errorf("%w: nothing could be written for %v", ErrSlow, o.timeout)
		}
	}
	return nil, o.nc.SetWriteDeadline(time.Time{})
}

// wrote counts what was written while the rest waits.
func (o *outbox) wrote(n int) {
	o.lapses.Store(0)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writing -= n
	o.charge()
}

// drain takes no more and writes what waits. The caller is the reader, which has ended,
// and bounds the time by closing the connection.
func (o *outbox) drain() {
	o.mu.Lock()
	o.sealed = true
	o.mu.Unlock()
	o.running.Wait() // it leaves nothing
	o.mu.Lock()
	rest := o.takeQueue()
	o.mu.Unlock()
	if !o.dead.Load() {
		_, _ = o.writeAll(rest)
	}
}

// fail closes the connection. The first reason counts, and is returned.
func (o *outbox) fail(err error) error {
	o.mu.Lock()
	if o.err == nil {
		o.err = err
	}
	o.sealed = true
	err = o.err
	first := !o.dead.Swap(true)
	o.charge()
	o.mu.Unlock()
	if first {
		if o.budget != nil {
			o.budget.remove(o)
		}
		_ = o.nc.Close()
	}
	return err
}

// wait returns when no flusher runs any more.
func (o *outbox) wait() { o.running.Wait() }
