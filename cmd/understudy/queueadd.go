package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/backoff"
	"github.com/understudy-ha/understudy/internal/strictyaml"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/lease"
)

const (
	// maxGroup and maxGroupBytes bound what is stored at once.
	maxGroup      = 500
	maxGroupBytes = 4 << 20
	// maxLine is room for the largest payload in Base64.
	maxLine = dispatch.MaxPayload/3*4 + 64<<10
)

type queueAddFlags struct {
	key, id, contentType string
	notBefore            string
	headers              map[string]string
	ndjson, create       bool
}

func (a *app) queueAddCommand() *cobra.Command {
	var f queueAddFlags
	c := &cobra.Command{
		Use:   "add QUEUE {--key KEY | --ndjson} [FILE|-]",
		Short: "Enqueue a payload, or many messages from newline-delimited JSON",
		Long: `Enqueue a file, or standard input, as the payload of one message, and print its ID. An ID that the queue
already has is not stored again: a line on standard error says so, and the exit code is 0, so that a command may be
repeated.

With --ndjson each line is a message:

  {"key": "customer-7", "id": "order-42", "payload_json": {"total": 12}}

with "key", and if you like "id", "content_type", "headers", "not_before" and one of "payload"
(text), "payload_base64" and "payload_json". The IDs are printed as they are stored. It stops at
the first invalid line and names it; earlier lines are stored.`,
		Example: `  understudy queue add orders --key customer-7 --id order-42 order.json
  echo hello | understudy queue add orders --key customer-7 --create
  understudy queue add orders --key customer-7 --id reminder-42 --not-before 24h reminder.json
  understudy queue add orders --ndjson orders.ndjson >ids`,
		Args: exactly("QUEUE", "[FILE]"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.check(args[0]); err != nil {
				return err
			}
			in, err := input(c, args[1:])
			if err != nil {
				return err
			}
			defer in.Close()
			a.mayCreate = f.create
			return a.withAPI(c.Context(), func(ctx context.Context, c *client.Client) error {
				return a.addMessages(ctx, c, args[0], in, f)
			})
		},
	}
	c.Flags().StringVar(&f.key, "key", "", "`KEY` of the message: messages of one key are delivered in order")
	c.Flags().StringVar(&f.id, "id", "", "`ID` of the message, unique in the queue (default a random one)")
	c.Flags().StringToStringVar(&f.headers, "header", nil, "`NAME=VALUE` that goes with the message to its target, such as traceparent=…; may be repeated")
	c.Flags().StringVar(&f.notBefore, "not-before", "", "do not send it before this `TIME`, such as 2026-12-24T18:00:00Z, or before 10m from now; its key goes on meanwhile")
	c.Flags().StringVar(&f.contentType, "content-type", "", "`TYPE` of the payload (default "+dispatch.DefaultContentType+")")
	c.Flags().BoolVar(&f.ndjson, "ndjson", false, "read a message from each line, as JSON")
	c.Flags().BoolVar(&f.create, "create", false, "create the queue if missing")
	strictyaml.Renamed(c.Flags(), "make", "create")
	return c
}

// parseNotBefore reads --not-before, at this moment.
func parseNotBefore(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(d), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, usererr.Errorf("--not-before %q: give a time, such as 2026-12-24T18:00:00Z, or how long from now, such as 10m", text)
	}
	return at, nil
}

func (f queueAddFlags) check(queue string) error {
	if err := dispatch.ValidateQueue(queue); err != nil {
		return err
	}
	switch {
	case f.ndjson && (f.key != "" || f.id != "" || f.contentType != "" || f.headers != nil || f.notBefore != ""):
		return usererr.Errorf("with --ndjson, key, id, content type, headers and not_before are in each line")
	case !f.ndjson && f.key == "":
		return usererr.Errorf("--key says which messages are delivered in order; with --ndjson it is in each line")
	}
	return nil
}

func (a *app) addMessages(ctx context.Context, c *client.Client, queue string, in io.Reader, f queueAddFlags) error {
	if f.create {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		err := c.CreateQueue(call, queue)
		cancel()
		if err != nil {
			return err
		}
	}
	adder := &adder{app: a, api: c, queue: queue, printedAt: time.Now()}
	if f.ndjson {
		return adder.lines(ctx, in)
	}
	notBefore, err := parseNotBefore(f.notBefore, time.Now())
	if err != nil {
		return err
	}
	payload, err := io.ReadAll(io.LimitReader(in, dispatch.MaxPayload+1))
	if err != nil {
		return fmt.Errorf("reading the payload: %w", err)
	}
	if len(payload) > dispatch.MaxPayload {
		return usererr.Errorf("the payload has more than %d bytes", dispatch.MaxPayload)
	}
	b := dispatch.Message{Queue: queue, Key: f.key, ID: f.id, ContentType: f.contentType, Payload: payload, Headers: f.headers, NotBefore: notBefore}
	if err := b.WithDefaults().Validate(); err != nil {
		return err
	}
	adder.collect(b)
	if err := adder.store(ctx); err != nil || adder.doubles == 0 {
		return err
	}
	_, err = fmt.Fprintf(a.stderr, "%s is in %s already; it was not stored again\n", termtext.Text(f.id), queue)
	return err
}

// adder stores messages in groups.
type adder struct {
	app   *app
	api   *client.Client
	queue string

	group  []dispatch.Message
	random []bool // which of them had no id
	bytes  int

	stored, doubles int
	printedAt       time.Time // when progress was last printed
}

// lines stores what stands in newline-delimited JSON.
func (d *adder) lines(ctx context.Context, in io.Reader) error {
	scan := bufio.NewScanner(in)
	scan.Buffer(nil, maxLine)
	for line := 1; scan.Scan(); line++ {
		if scan.Err() != nil {
			break // what it has is a part of a line
		}
		text := bytes.TrimSpace(scan.Bytes())
		if len(text) == 0 {
			continue
		}
		b, err := parseLine(text, d.queue)
		if err != nil {
			return d.endAt(ctx, fmt.Errorf("line %d: %w", line, err))
		}
		if d.bytes+len(b.Payload) > maxGroupBytes {
			if err := d.store(ctx); err != nil {
				return d.endAt(ctx, err)
			}
		}
		d.collect(b)
		if len(d.group) == maxGroup {
			if err := d.store(ctx); err != nil {
				return d.endAt(ctx, err)
			}
			d.progress()
		}
	}
	if err := scan.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			err = usererr.Errorf("a line has more than %d bytes", maxLine)
		}
		return d.endAt(ctx, err)
	}
	if err := d.store(ctx); err != nil {
		return d.endAt(ctx, err)
	}
	_, err := fmt.Fprintln(d.app.stderr, d.sum())
	return err
}

// parseLine reads one message; one without an ID keeps none yet.
func parseLine(text []byte, queue string) (dispatch.Message, error) {
	var in apitype.NewMessage
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		return dispatch.Message{}, fmt.Errorf("%w: this is not a message in JSON: %w", lease.ErrInvalid, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return dispatch.Message{}, fmt.Errorf("%w: something follows the message", lease.ErrInvalid)
	}
	b, err := api.MessageOf(in, queue)
	b.ID = in.ID
	return b, err
}

// collect adds a message to the group. It gets its ID here, so that the group can be
// sent again when it is not known whether it was stored.
func (d *adder) collect(b dispatch.Message) {
	d.random = append(d.random, b.ID == "")
	d.group = append(d.group, b.WithDefaults())
	d.bytes += len(b.Payload)
}

// store stores the group and prints its ids.
func (d *adder) store(ctx context.Context) error {
	group, random := d.group, d.random
	d.group, d.random, d.bytes = nil, nil, 0
	if len(group) == 0 {
		return nil
	}
	added, err := d.add(ctx, group)
	if err != nil {
		return err
	}
	for i, b := range group {
		fresh := added[i] || random[i] // a random id is there already only if an attempt without an answer brought it
		if fresh {
			d.stored++
		} else {
			d.doubles++
		}
		if err := d.app.print(map[string]any{"queue": d.queue, "key": b.Key, "id": b.ID, "added": fresh}, "%s", b.ID); err != nil {
			return err
		}
	}
	return nil
}

// add tries for a while when the store does not answer: the ids make it harmless.
func (d *adder) add(ctx context.Context, group []dispatch.Message) ([]bool, error) {
	const attempts = 5
	for n := 1; ; n++ {
		call, cancel := context.WithTimeout(ctx, payloadTimeout)
		added, err := d.enqueue(call, group)
		cancel()
		err = apiError(err)
		if err == nil || n == attempts || ctx.Err() != nil || !mayRecover(err) {
			return added, err
		}
		d.app.Log.Warn("outcome unknown or not stored; retrying", "err", err)
		if !backoff.Sleep(ctx, time.Duration(n)*200*time.Millisecond) {
			return nil, context.Cause(ctx)
		}
	}
}

// enqueue says of each message whether it is new. A long payload is sent by itself, as it is.
func (d *adder) enqueue(ctx context.Context, group []dispatch.Message) ([]bool, error) {
	messages := make([]apitype.NewMessage, len(group))
	for i, m := range group {
		messages[i] = apitype.NewMessage{Key: m.Key, ID: m.ID, ContentType: m.ContentType, Base64: append([]byte{}, m.Payload...), Headers: m.Headers, NotBefore: m.NotBefore}
	}
	var added []apitype.AddedMessage
	var err error
	if len(group) == 1 && len(group[0].Payload) > maxGroupBytes {
		added = make([]apitype.AddedMessage, 1)
		added[0], err = d.api.AddPayload(ctx, d.queue, messages[0])
	} else {
		added, err = d.api.Add(ctx, d.queue, messages...)
	}
	if err != nil {
		return nil, err
	}
	if len(added) != len(group) {
		return nil, fmt.Errorf("%w: the answer was about %d messages, not %d", lease.ErrUnknown, len(added), len(group))
	}
	out := make([]bool, len(added))
	for i, one := range added {
		out[i] = one.Added
	}
	return out, nil
}

// endAt stores what was right before it, unless the store was the trouble, and
// says how far it came. A signal that ends the input does not end this.
func (d *adder) endAt(ctx context.Context, wrong error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), payloadTimeout)
	defer cancel()
	if err := d.store(ctx); err != nil {
		wrong = errors.Join(wrong, err)
	}
	return fmt.Errorf("%w; before that, %s", wrong, d.sum())
}

func (d *adder) sum() string {
	return fmt.Sprintf("%d stored, %d were there already", d.stored, d.doubles)
}

func (d *adder) progress() {
	if time.Since(d.printedAt) >= progressEvery {
		d.printedAt = time.Now()
		fmt.Fprintln(d.app.stderr, d.sum())
	}
}
