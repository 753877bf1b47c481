package target

import (
	"bufio"
	"cmp"
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
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/sawtooth"
	"github.com/understudy-ha/understudy/internal/untrusted"
	"github.com/understudy-ha/understudy/lease"
)

// otherService is another service of a circuit, whose node learns what this one may have forgotten.
type otherService struct {
	circuit string
	url     *url.URL
	silence *silence
}

// silence is since when a place could not be searched.
type silence struct {
	mu          sync.Mutex
	since, last time.Time
}

// isGone notes whether a search of the place has seen all that is there, and reports whether none has for so long that
// nothing waits for it any more.
func (s *silence) isGone(now time.Time, searched bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case searched:
		s.since = time.Time{}
		return false
	case s.since.IsZero() || now.Sub(s.last) > silenceForgotten: // it may have been well in between
		s.since = now
	}
	s.last = now
	return now.Sub(s.since) >= goneAfter
}

// parseOtherService reads the address of a service: URL/scabbard/CIRCUIT/SERVICE.
func parseOtherService(address string) (otherService, error) {
	const form = "%w: other services: %.100q is not the address of a service: https://HOST/scabbard/CIRCUIT/SERVICE"
	if err := (HTTPConfig{URL: address}).Validate(); err != nil {
		return otherService{}, fmt.Errorf("other services: %w", err)
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
	return otherService{circuit, u, &silence{}}, nil
}

// Bounds of a search.
const (
	othersAfter   = 10 * time.Second // a message that its service has had for so long may be decided elsewhere
	receiptsQuiet = time.Second      // without another receipt: all that there are have come
	receiptsTime  = 5 * time.Second
	maxReceipt    = 8 << 20 // bytes; a longer one is passed over
	othersTime    = 3 * time.Second

	// goneAfter is how long a place that cannot be searched keeps a key from blocking. Operators see a batch that is not
	// decided after the same time.
	goneAfter        = ledgerDecides
	silenceForgotten = 10 * time.Minute // without a search; longer than the pauses between two
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

// place is where evidence may be.
type place struct {
	url     *url.URL
	silence *silence
	err     error // why it was not searched; nil if it was
	mute    bool  // it did not answer at all
}

// evidence looks for the fate of a batch at the other services of its circuit, and among the receipts of all: these
// outlive restarts, and name transactions. The answer that there is stays if nothing is found. Where not all were
// searched it is not "not found", on which a key blocks, or a batch is carried out once more.
func (s *Scabbard) evidence(ctx context.Context, a dispatch.Assignment, answer dispatch.Answer) dispatch.Answer {
	circuit, service, err := sawtooth.ParseService(a.Key)
	if err != nil {
		return answer
	}
	places := []*place{{url: s.client.base.JoinPath("scabbard", circuit, service), silence: &s.silence}}
	for _, other := range s.also {
		if other.circuit == circuit {
			places = append(places, &place{url: other.url, silence: other.silence})
		}
	}
	if found, ok := s.askOthers(ctx, a.ID, places[1:]); ok {
		return found
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
	for _, p := range places {
		if p.mute { // a search would take the place of another for nothing
			continue
		}
		found, err := s.hasReceipts(ctx, p.url, want)
		switch {
		case found:
			return dispatch.Answer{Outcome: dispatch.Done, Code: http.StatusOK, Detail: "the receipts of its transactions are at " + p.url.String()}
		case err != nil:
			p.err = cmp.Or(p.err, err)
		}
	}
	return withFailures(answer, places)
}

// askOthers asks other services what became of a batch, all at once, for a part of the time that there is: one that hangs
// must not use up what the receipts need.
func (s *Scabbard) askOthers(ctx context.Context, id string, others []*place) (dispatch.Answer, bool) {
	if ctx.Err() != nil {
		for _, p := range others {
			p.err = errNoTime
		}
		return dispatch.Answer{}, false
	}
	within := othersTime
	if deadline, ok := ctx.Deadline(); ok {
		within = min(within, time.Until(deadline)/3)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	said := make([]dispatch.Answer, len(others))
	concurrently(len(others), func(i int) { said[i] = s.statusesAt(ctx, others[i].url, []string{id})[0] })
	for i, found := range said {
		switch found.Outcome {
		case dispatch.Done, dispatch.InvalidMessage:
			found.Detail = strings.TrimPrefix(found.Detail+"; so says "+others[i].url.String(), "; ")
			return found, true
		case dispatch.Uncertain:
			others[i].err, others[i].mute = errors.New(found.Detail), found.Code == 0
		}
	}
	return dispatch.Answer{}, false
}

// withFailures names the places that were not searched in an answer by which a batch is not found, and makes it
// uncertain as long as one of them may still know it.
func withFailures(answer dispatch.Answer, places []*place) dispatch.Answer {
	notFound := answer.Outcome == dispatch.NotFound
	for _, p := range places {
		// What there was no time for says nothing about the place.
		gone := !errors.Is(p.err, errNoTime) && p.silence.isGone(time.Now(), p.err == nil)
		if !notFound || p.err == nil {
			continue
		}
		answer.Detail += "; " + p.url.String() + " was not searched: " + untrusted.Words(p.err.Error())
		if !gone {
			answer.Outcome = dispatch.Uncertain
		}
	}
	return answer
}

var (
	errNoTime = errors.New("too many searches at once")
	errSlow   = errors.New("reading its receipts takes too long")
)

// hasReceipts reports whether a service has a receipt of each of these transactions. They come over a websocket, in no
// order, some of them twice. An error means that not all receipts were read.
func (s *Scabbard) hasReceipts(ctx context.Context, service *url.URL, want map[string]bool) (bool, error) {
	if ctx.Err() != nil {
		return false, errNoTime
	}
	select { // a node has few workers, and each search reads all that there is
	case s.searching <- struct{}{}:
		defer func() { <-s.searching }()
	case <-ctx.Done():
		return false, errNoTime
	}
	ctx, cancel := context.WithTimeout(ctx, receiptsTime)
	defer cancel()
	to := service.JoinPath("ws", "subscribe")
	to.RawQuery = "last_seen_event=" // all that there are
	events, err := s.client.subscribe(ctx, to, s.header())
	if err != nil {
		return false, err
	}
	defer events.Close()
	var all atomic.Bool
	quiet := time.AfterFunc(receiptsQuiet, func() { all.Store(true); _ = events.Close() })
	defer quiet.Stop()
	found := make(map[string]bool, len(want))
	for in := bufio.NewReader(events); len(found) < len(want); {
		text, err := readEvent(in)
		switch {
		case err != nil && all.Load():
			return false, nil
		case err != nil && ctx.Err() != nil:
			return false, errSlow
		case err != nil:
			return false, err
		}
		quiet.Reset(receiptsQuiet)
		var receipt struct {
			ID string `json:"id"`
		}
		if json.Unmarshal(text, &receipt) == nil && want[receipt.ID] {
			found[receipt.ID] = true
		}
	}
	return true, nil
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
