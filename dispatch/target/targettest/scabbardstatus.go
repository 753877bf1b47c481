package targettest

import (
	"bufio"
	"crypto/sha1" //nolint:gosec // that is how a websocket is agreed on
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

func (s *Scabbard) statuses(w http.ResponseWriter, r *http.Request, service string, f Fault) {
	query := r.URL.Query()
	if !query.Has("ids") {
		scabbardError(w, 400, "", "No batch IDs specified")
		return
	}
	ids := strings.Split(query.Get("ids"), ",")
	slices.Sort(ids)
	ids = slices.Compact(ids) // an order of its own, and nothing twice
	s.mu.Lock()
	svc := s.service(service)
	s.advance(service, svc, time.Now())
	out, unfinished := make([]map[string]any, 0, len(ids)), false
	for _, id := range ids {
		status, messages := "Unknown", []any{}
		at := slices.IndexFunc(svc.history, func(b *scabbardBatch) bool { return b.id == id })
		if at >= 0 {
			status, messages = svc.history[at].describe()
		}
		unfinished = unfinished || status != "Committed" && status != "Invalid"
		out = append(out, map[string]any{
			"id":        id,
			"status":    map[string]any{"statusType": status, "message": messages},
			"timestamp": map[string]any{"secs_since_epoch": time.Now().Unix(), "nanos_since_epoch": 0},
		})
	}
	s.mu.Unlock()
	if f.strike(w, r, http.StatusOK) {
		return
	}
	if s.Older && unfinished {
		scabbardError(w, 408, "", "timed out")
		return
	}
	writeCompact(w, http.StatusOK, out)
}

// describe names every transaction. In an invalid batch the last one is at fault here, and those before it, which were
// good, say so and come first.
func (b *scabbardBatch) describe() (status string, messages []any) {
	messages = []any{}
	for i, id := range b.txns {
		switch {
		case b.status == "Committed" || b.status == "Valid":
			messages = append(messages, map[string]any{"transaction_id": id})
		case b.status == "Invalid" && i < len(b.txns)-1:
			messages = append(messages, map[string]any{"transaction_id": id, "error_message": fmt.Sprintf("containing batch (%s) is invalid", b.id), "error_data": []int{}})
		case b.status == "Invalid":
			messages = append(messages, map[string]any{"transaction_id": id, "error_message": b.why, "error_data": []int{1, 255}})
		}
	}
	return b.status, messages
}

// subscribe replays the receipts of a circuit over a websocket: each twice, in no order, and then nothing more.
func (s *Scabbard) subscribe(w http.ResponseWriter, r *http.Request, service string, _ Fault) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		scabbardError(w, 400, "", "not a websocket")
		return
	}
	s.mu.Lock()
	circuit, _, _ := strings.Cut(service, "::")
	ids := slices.Clone(s.receipts[circuit])
	s.mu.Unlock()
	if !r.URL.Query().Has("last_seen_event") {
		ids = nil // only what is new
	}
	slices.Reverse(ids)
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // as above
	fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		base64.StdEncoding.EncodeToString(sum[:]))
	for _, id := range append(ids, ids...) {
		event, err := json.Marshal(map[string]any{"id": id, "state_changes": []any{map[string]any{"Set": map[string]any{"key": "00", "value": make([]int, 200)}}}})
		if err != nil {
			panic(err)
		}
		writeFrame(rw.Writer, event)
	}
	if rw.Flush() != nil {
		return
	}
	_, _ = rw.ReadByte() // until the client leaves
}

// writeFrame writes a text as a server does: unmasked.
func writeFrame(w *bufio.Writer, text []byte) {
	head := []byte{0x81, byte(len(text))}
	if len(text) > 125 {
		head = binary.BigEndian.AppendUint16([]byte{0x81, 126}, uint16(len(text)))
	}
	_, _ = w.Write(append(head, text...))
}

func scabbardError(w http.ResponseWriter, status int, code, message string) {
	body := map[string]any{"message": message}
	if code != "" {
		body["code"] = code
	}
	writeCompact(w, status, body)
}

func writeCompact(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprint("an answer that is no JSON: ", err))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
