package fakerouter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	maxMessages = 4096    // of one answer
	maxBody     = 8 << 20 // of a publication
	defaultWait = 10 * time.Second
)

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")
	req := Request{Method: r.Method, ContentType: r.Header.Get("Content-Type")}
	if len(parts) > 1 && parts[0] == "events" {
		req.Topic = parts[1]
	}
	switch {
	case r.Method == http.MethodGet && len(parts) == 4:
		req.Group, req.Consumer = parts[2], parts[3]
	case r.Method == http.MethodPost && len(parts) == 2:
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			refuse(w, http.StatusRequestEntityTooLarge, 5003, "the body is too large")
			return
		}
		req.Body = string(body)
	default:
		refuse(w, http.StatusNotFound, 3001, "no such path")
		return
	}
	if err := req.query(r); err != nil {
		refuse(w, http.StatusBadRequest, 5008, err.Error())
		return
	}
	fault, delay := s.arrive(req)
	select {
	case <-r.Context().Done():
		return
	case <-time.After(delay):
	}
	if fault.strike(w, r) {
		return
	}
	s.mu.Lock()
	to, user, password := s.topics[req.Topic], s.user, s.password
	s.mu.Unlock()
	name, secret, _ := r.BasicAuth()
	switch {
	case name != user || secret != password:
		refuse(w, http.StatusUnauthorized, 4001, "no such user, or another password")
	case to == nil:
		refuse(w, http.StatusNotFound, 3001, "no such topic")
	case r.Method == http.MethodGet:
		s.consume(w, r, req, to, fault)
	default:
		s.publish(w, req, fault)
	}
}

func (q *Request) query(r *http.Request) error {
	q.Wait = defaultWait
	values := r.URL.Query()
	if v := values.Get("timeout"); v != "" {
		ms, err := strconv.ParseUint(v, 10, 31)
		if err != nil {
			return fmt.Errorf("timeout %q is no number of milliseconds", v)
		}
		q.Wait = time.Duration(ms) * time.Millisecond
	}
	if v := values.Get("limit"); v != "" {
		n, err := strconv.ParseUint(v, 10, 31)
		if err != nil {
			return fmt.Errorf("limit %q is no number", v)
		}
		q.Limit = int(n)
	}
	return nil
}

func (s *Server) consume(w http.ResponseWriter, r *http.Request, req Request, from *topic, fault Fault) {
	poll := req.Topic + "/" + req.Group + "/" + req.Consumer
	s.mu.Lock()
	twice := s.polls[poll]
	s.polls[poll] = true
	g := from.groups[req.Group]
	if g == nil {
		g = &group{}
		from.groups[req.Group] = g
	}
	s.mu.Unlock()
	if twice {
		refuse(w, http.StatusConflict, 5012, "this consumer reads from another place at the same time")
		return
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.polls, poll)
	}()
	g.turn.Lock()
	defer g.turn.Unlock()
	messages := s.await(r, req, from, g)
	body := s.render(messages)
	if fault.Cut {
		s.commit(g, len(messages))
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if fault.Half {
		_, _ = w.Write(body[:len(body)/2])
		_ = http.NewResponseController(w).Flush()
		s.commit(g, len(messages))
		panic(http.ErrAbortHandler)
	}
	if _, err := w.Write(body); err != nil || r.Context().Err() != nil {
		return
	}
	s.commit(g, len(messages))
}

func (s *Server) commit(g *group, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.offset += n
}

// await returns the next messages of a group, or none when the poll has lasted
// long enough.
func (s *Server) await(r *http.Request, req Request, from *topic, g *group) []string {
	limit := maxMessages
	if req.Limit > 0 {
		limit = min(limit, req.Limit)
	}
	end := time.After(max(0, req.Wait-min(500*time.Millisecond, req.Wait/2)))
	for {
		s.mu.Lock()
		rest, changed := from.messages[g.offset:], s.changed
		s.mu.Unlock()
		if len(rest) > 0 {
			return rest[:min(len(rest), limit)]
		}
		select {
		case <-changed:
		case <-end:
			return nil
		case <-r.Context().Done():
			return nil
		}
	}
}

func (s *Server) render(messages []string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b bytes.Buffer
	b.WriteByte('[')
	for i, m := range messages {
		if i > 0 {
			b.WriteByte(',')
		}
		if s.objects {
			b.WriteString(m)
		} else {
			text, _ := json.Marshal(m)
			b.Write(text)
		}
		if s.pretty {
			b.WriteByte('\n')
		}
	}
	b.WriteByte(']')
	return b.Bytes()
}

func (s *Server) publish(w http.ResponseWriter, req Request, fault Fault) {
	messages, err := divide(req)
	if err != nil {
		refuse(w, http.StatusBadRequest, 5005, err.Error())
		return
	}
	if fault.Count != 0 {
		messages = messages[:max(0, min(fault.Count, len(messages)))]
	}
	s.Publish(req.Topic, messages...)
	if fault.Cut {
		panic(http.ErrAbortHandler)
	}
	n := len(messages)
	if fault.Count > 0 {
		n = fault.Count
	}
	answer := fmt.Appendf(nil, `{"serverTimeMs":1,"count":%d}`, n)
	w.Header().Set("Content-Type", "application/json")
	if fault.Half {
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		_, _ = w.Write(answer[:len(answer)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(answer)
}

// divide finds the messages of a publication as its content type says.
func divide(req Request) ([]string, error) {
	kind, _, _ := strings.Cut(req.ContentType, ";")
	switch kind {
	case "application/json":
		body := strings.TrimSpace(req.Body)
		items := []json.RawMessage{json.RawMessage(body)}
		if strings.HasPrefix(body, "[") {
			if err := json.Unmarshal([]byte(body), &items); err != nil {
				return nil, err
			}
		}
		var messages []string
		for _, item := range items {
			var object map[string]any
			if err := json.Unmarshal(item, &object); err != nil || object == nil {
				return nil, fmt.Errorf("a message is no object")
			}
			messages = append(messages, string(item))
		}
		return messages, nil
	case "text/plain":
		return strings.Split(strings.TrimSuffix(req.Body, "\n"), "\n"), nil
	case "application/cambria", "application/cambria-zip":
		return nil, fmt.Errorf("this stand-in does not read cambria")
	}
	return []string{req.Body}, nil
}
