package target

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/sawtooth"
	"github.com/understudy-ha/understudy/lease"
)

// otherService is another service of a circuit, whose node learns what this one may have forgotten.
type otherService struct {
	circuit string
	url     *url.URL
}

// parseAlso reads the address of a service: URL/scabbard/CIRCUIT/SERVICE.
func parseAlso(address string) (otherService, error) {
	const form = "%w: also: %.100q is not the address of a service: https://HOST/scabbard/CIRCUIT/SERVICE"
	if err := (HTTPConfig{URL: address}).Validate(); err != nil {
		return otherService{}, fmt.Errorf("also: %w", err)
	}
	u, err := url.Parse(address)
	if err != nil {
		return otherService{}, fmt.Errorf(form, lease.ErrInvalid, address)
	}
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	if len(parts) < 3 || parts[len(parts)-3] != "scabbard" {
		return otherService{}, fmt.Errorf(form, lease.ErrInvalid, address)
	}
	circuit, _, err := sawtooth.ParseService(parts[len(parts)-2] + "::" + parts[len(parts)-1])
	if err != nil {
		return otherService{}, fmt.Errorf(form, lease.ErrInvalid, address)
	}
	return otherService{circuit, u}, nil
}

// Bounds of a search.
const (
	othersAfter   = 10 * time.Second // a message that its service has had for so long may be decided elsewhere
	receiptsQuiet = time.Second      // without another receipt: all that there are have come
	receiptsTime  = 5 * time.Second
	maxReceipt    = 8 << 20 // bytes; a longer one is passed over
)

// needsEvidence reports that its own service does not say what became of a batch, and others may.
func needsEvidence(a dispatch.Assignment, answer dispatch.Answer) bool {
	switch answer.Outcome {
	case dispatch.NotFound:
		return a.Work != dispatch.Poll // a message that was polled is asked for once more before anything is decided
	case dispatch.Accepted, dispatch.Executed:
		return a.Undecided >= othersAfter
	}
	return false
}

// evidence looks for the fate of a batch at the other services of its circuit, and among the receipts of all: these
// outlive restarts, and name transactions. The answer that there is stays if nothing is found.
func (s *Scabbard) evidence(ctx context.Context, a dispatch.Assignment, answer dispatch.Answer) dispatch.Answer {
	circuit, service, err := sawtooth.ParseService(a.Key)
	if err != nil {
		return answer
	}
	places := []*url.URL{s.client.base.JoinPath("scabbard", circuit, service)}
	for _, other := range s.also {
		if other.circuit != circuit {
			continue
		}
		places = append(places, other.url)
		found := s.statusesAt(ctx, other.url, []string{a.ID})[0]
		if found.Outcome == dispatch.Done || found.Outcome == dispatch.InvalidMessage {
			found.Detail = strings.TrimPrefix(found.Detail+"; so says "+other.url.String(), "; ")
			return found
		}
	}
	batch, err := sawtooth.OnlyBatch(a.Payload)
	if err != nil {
		return answer
	}
	want := map[string]bool{}
	err = batch.Transactions(func(t sawtooth.Transaction) error { want[t.ID] = true; return nil })
	if err != nil || len(want) == 0 {
		return answer
	}
	for _, place := range places {
		if s.hasReceipts(ctx, place, want) {
			return dispatch.Answer{Outcome: dispatch.Done, Code: http.StatusOK, Detail: "the receipts of its transactions are at " + place.String()}
		}
	}
	return answer
}

// hasReceipts reports whether a service has a receipt of each of these transactions. They come over a websocket, in no
// order, some of them twice.
func (s *Scabbard) hasReceipts(ctx context.Context, service *url.URL, want map[string]bool) bool {
	select { // a node has few workers, and each search reads all that there is
	case s.searching <- struct{}{}:
		defer func() { <-s.searching }()
	case <-ctx.Done():
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, receiptsTime)
	defer cancel()
	to := service.JoinPath("ws", "subscribe")
	to.RawQuery = "last_seen_event=" // all that there are
	events, err := s.client.subscribe(ctx, to, s.header())
	if err != nil {
		return false
	}
	defer events.Close()
	quiet := time.AfterFunc(receiptsQuiet, func() { _ = events.Close() })
	defer quiet.Stop()
	found := make(map[string]bool, len(want))
	for in := bufio.NewReader(events); len(found) < len(want); {
		text, err := readEvent(in)
		if err != nil {
			return false
		}
		quiet.Reset(receiptsQuiet)
		var receipt struct {
			ID string `json:"id"`
		}
		if json.Unmarshal(text, &receipt) == nil && want[receipt.ID] {
			found[receipt.ID] = true
		}
	}
	return true
}

// subscribe opens a websocket from which events are read.
func (c *client) subscribe(ctx context.Context, to *url.URL, header http.Header) (io.ReadCloser, error) {
	key := make([]byte, 16)
	_, _ = rand.Read(key) // it never fails
	header.Set("Connection", "Upgrade")
	header.Set("Upgrade", "websocket")
	header.Set("Sec-WebSocket-Version", "13")
	header.Set("Sec-WebSocket-Key", base64.StdEncoding.EncodeToString(key))
	if c.token != nil {
		token, err := c.token.get()
		if err != nil {
			return nil, err
		}
		header.Set("Authorization", "Bearer "+token)
	}
	r := &http.Request{Method: http.MethodGet, URL: to, Header: header, Host: to.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	answer, err := c.transport.RoundTrip(r.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusSwitchingProtocols {
		_ = answer.Body.Close()
		return nil, fmt.Errorf("%w: HTTP %d", errNoEvents, answer.StatusCode)
	}
	context.AfterFunc(ctx, func() { _ = answer.Body.Close() })
	return answer.Body, nil
}

var errNoEvents = errors.New("no events")

// readEvent returns the next text of a websocket. Pings are not answered: nothing is read for long.
func readEvent(in *bufio.Reader) ([]byte, error) {
	var text []byte
	for {
		var head [2]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return nil, err
		}
		size := uint64(head[1] & 0x7f)
		if wide := map[uint64]int{126: 2, 127: 8}[size]; wide > 0 {
			var long [8]byte
			if _, err := io.ReadFull(in, long[8-wide:]); err != nil {
				return nil, err
			}
			size = binary.BigEndian.Uint64(long[:])
		}
		opcode, last := head[0]&0x0f, head[0]&0x80 != 0
		switch {
		case opcode == 8:
			return nil, io.EOF
		case size > 1<<40:
			return nil, errLong
		case opcode > 8 || uint64(len(text))+size > maxReceipt:
			if _, err := io.CopyN(io.Discard, in, int64(size)); err != nil {
				return nil, err
			}
		default:
			part := make([]byte, size)
			if _, err := io.ReadFull(in, part); err != nil {
				return nil, err
			}
			text = append(text, part...)
		}
		if last && opcode < 8 {
			return text, nil
		}
	}
}
