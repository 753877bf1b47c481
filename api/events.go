package api

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
)

const (
	heartbeat = 15 * time.Second
	// writeWithin is how long one write to a stream may take.
	writeWithin = 10 * time.Second
)

// events streams the history as it is written, and the state to whoever asks
// for it with state=true. A reader that comes back names the last event that it
// saw and gets what it missed.
func (s *Server) events(w http.ResponseWriter, r *http.Request) error {
	part, err := filter(r, "part")
	if err != nil {
		return err
	}
	subject, err := filter(r, "subject")
	if err != nil {
		return err
	}
	after, err := lastSeen(r)
	if err != nil {
		return err
	}
	state, err := flag(r, "state")
	if err != nil {
		return err
	}
	reader := newReader(part, subject, state)
	known, err := s.stream.join(reader, after)
	if err != nil {
		return err
	}
	defer s.stream.leave(reader)
	if reader.state {
		s.board.nudge()
	}

	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // a proxy that collects answers would hold it back
	out := frames{w: w, c: http.NewResponseController(w)}
	if err := out.write([]byte("retry: 1000\n\n")); err != nil {
		return nil
	}
	var sent map[int64]bool
	if !known {
		if sent, err = s.replay(r, out, reader, after); err != nil {
			s.log.Debug("stream broke", "err", err)
			return nil // the reader comes back, and names the last that it got
		}
	}
	s.follow(r, out, reader, sent)
	return nil
}

// follow writes what comes, until the reader goes or falls behind, or the server
// stops. What was sent before is left out.
func (s *Server) follow(r *http.Request, out frames, reader *reader, sent map[int64]bool) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-s.running.Done():
			return
		case <-beat.C:
			if out.write([]byte(": still here\n\n")) != nil {
				return
			}
			continue
		case <-reader.wake:
		}
		messages, ok := s.stream.take(reader)
		if !ok {
			s.log.Debug("stream closed: its reader fell behind", "remote", r.RemoteAddr)
			return
		}
		for _, m := range messages {
			if m.event != nil && sent[m.event.ID] {
				continue
			}
			if out.write(m.frame) != nil {
				return
			}
		}
	}
}

// replay writes what the store has after an event that is not among the latest,
// and returns which events it wrote, because some may come a second time.
func (s *Server) replay(r *http.Request, out frames, reader *reader, after int64) (map[int64]bool, error) {
	sent := map[int64]bool{}
	q := history.Query{After: after, Part: reader.part, Subject: reader.subject}
	for {
		call, cancel := context.WithTimeout(r.Context(), s.cfg.Timeout)
		page, err := s.cfg.Store.Read(call, q)
		cancel()
		if err != nil {
			return nil, err
		}
		if len(sent) > 4*history.MaxRead {
			clear(sent) // only the newest can be on their way a second time
		}
		for _, e := range page {
			q.After = e.ID
			m, err := eventMessage(e)
			if err != nil {
				return nil, err
			}
			if err := out.write(m.frame); err != nil {
				return nil, err
			}
			sent[e.ID] = true
		}
		if len(page) < history.MaxRead {
			return sent, nil
		}
	}
}

// lastSeen is the event after which the reader wants to go on; negative if it
// wants what comes from now on.
func lastSeen(r *http.Request) (int64, error) {
	text := r.Header.Get("Last-Event-ID")
	if text == "" {
		return number(r, "after", 0, math.MaxInt64, -1)
	}
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 0 {
		return 0, fmt.Errorf("%w: Last-Event-ID %.50q is not the id of an event", lease.ErrInvalid, text)
	}
	return id, nil
}

// frames writes to a stream, each frame at once and within its time.
type frames struct {
	w http.ResponseWriter
	c *http.ResponseController
}

func (f frames) write(frame []byte) error {
	_ = f.c.SetWriteDeadline(time.Now().Add(writeWithin))
	if _, err := f.w.Write(frame); err != nil {
		return err
	}
	return f.c.Flush()
}
