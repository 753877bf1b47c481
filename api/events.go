package api

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/understudy-ha/understudy/history"
)

const (
	keepAliveInterval = 15 * time.Second
	// writeTimeout is how long one write to a stream may take.
	writeTimeout = 10 * time.Second
)

// events streams the history as it is written, and with state=true the state too. A reader that reconnects names the last
// event that it saw and gets those it missed.
func (s *Server) events(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	reader := newReader(storedPart(q.name("part")), q.name("subject"), q.flag("state"))
	after := resumeAfter(r, q)
	if q.err != nil {
		return q.err
	}
	keep := pageStreams
	if reader.state {
		keep = 0
	}
	leave, err := s.streams.take(r, keep)
	if err != nil {
		return err
	}
	defer leave()
	// Subscribe before the replay, not after: an event written in between would otherwise be in neither. Those in both
	// are sent once.
	known := s.stream.subscribe(reader, after)
	defer s.stream.unsubscribe(reader)
	if reader.state {
		s.poller.requestState()
	}

	out, ok := openStream(w, r)
	if !ok {
		return nil
	}
	// A reader of new events that loses its connection before the first one knows from this where to continue.
	if after < 0 && reader.newest >= 0 && out.write([]byte("id: "+strconv.FormatInt(reader.newest, 10)+"\n\n")) != nil {
		return nil
	}
	var sent map[int64]bool
	if !known {
		if sent, err = s.replay(r, out, reader, after); err != nil {
			s.log.Debug("stream ended: the replay failed", "err", err)
			return nil // the reader comes back, and names the last that it got
		}
	}
	s.streamEvents(r, out, reader, sent)
	return nil
}

// streamEvents writes events until the reader leaves or falls behind, or the server stops. It skips those already sent.
func (s *Server) streamEvents(r *http.Request, out sseWriter, reader *reader, sent map[int64]bool) {
	beat := time.NewTicker(keepAliveInterval)
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
		messages, ok := s.stream.pending(reader)
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
func (s *Server) replay(r *http.Request, out sseWriter, reader *reader, after int64) (map[int64]bool, error) {
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
			clear(sent) // only the newest can be in the stream's backlog too
		}
		for _, e := range page {
			q.After = e.ID
			m, err := newHistoryEvent(e)
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

// resumeAfter is the event after which the reader continues; negative for new events only.
func resumeAfter(r *http.Request, q *query) int64 {
	text := r.Header.Get("Last-Event-ID")
	if text == "" {
		return q.number("after", 0, math.MaxInt64, -1)
	}
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 0 {
		q.refuse("Last-Event-ID %.50q is not the id of an event", text)
	}
	return id
}

// sseWriter writes to a stream, each frame at once and within its time.
type sseWriter struct {
	w http.ResponseWriter
	c *http.ResponseController
}

// openStream starts the answer; false when nothing follows: the reader has gone, or asked with HEAD for the header alone.
func openStream(w http.ResponseWriter, r *http.Request) (out sseWriter, ok bool) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // a proxy that collects answers would hold it back
	if r.Method == http.MethodHead {
		w.WriteHeader(http.StatusOK)
		return out, false
	}
	out = sseWriter{w: w, c: http.NewResponseController(w)}
	return out, out.write([]byte("retry: 1000\n\n")) == nil
}

func (f sseWriter) write(frame []byte) error {
	_ = f.c.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := f.w.Write(frame); err != nil {
		return err
	}
	return f.c.Flush()
}
