package dispatchtest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/claim/claimtest"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
)

func testMany(b *bench) {
	const keys = claim.MaxKeys / 2
	s := b.session("a")
	var messages []dispatch.Message
	for i := range 2 * keys {
		id := fmt.Sprint("b", i)
		messages = append(messages, dispatch.Message{Queue: q, Key: fmt.Sprint("k", i*7919%keys), ID: id, Payload: []byte(id)})
	}
	if added, err := b.Admin.Add(b.ctx, messages); err != nil || slices.Contains(added, false) {
		b.Fatalf("Add of %d: %v", len(messages), err)
	}
	got := map[string][]string{}
	claims, err := b.Claims.ClaimKeys(b.ctx, claim.ClaimRequest{Space: dispatch.Space(q), Session: s.ID, Limit: claim.MaxKeys, Fresh: claim.MaxKeys})
	if err != nil || len(claims) != keys {
		b.Fatalf("Take = %d, %v", len(claims), err)
	}
	t := b.turn(s, nil, claims...)
	for round := range 2 {
		if len(t.Begun) != keys {
			b.Fatalf("round %d: %d begun", round, len(t.Begun))
		}
		var results []dispatch.Result
		for _, a := range t.Begun {
			got[a.Key] = append(got[a.Key], a.ID)
			results = append(results, done(a))
		}
		// Another order than that of the starts.
		rand.New(rand.NewPCG(1, 2)).Shuffle(keys, func(i, j int) { results[i], results[j] = results[j], results[i] })
		t = b.turn(s, results, claims...)
		if len(t.Holdings) != keys {
			b.Errorf("round %d: %d keys stand somewhere", round, len(t.Holdings))
		}
		for i, r := range t.Receipts {
			if !r.Accepted {
				b.Errorf("round %d: %+v was not accepted", round, results[i])
			}
		}
	}
	for _, x := range messages {
		if !slices.Contains(got[x.Key], x.ID) || len(got[x.Key]) != 2 {
			b.Fatalf("%s was delivered as %q", x.Key, got[x.Key])
		}
	}
	if t := b.turn(s, nil); len(t.Begun)+len(t.Receipts)+len(t.Holdings) != 0 {
		b.Errorf("an empty turn: %+v", t)
	}
}

// testRefusedTurns: an exchange that no dispatcher makes changes nothing.
func testRefusedTurns(b *bench) {
	s := b.session("a")
	b.add("k", "1")
	a := b.starts(s, "k")
	later := claim.Claim{Key: a.Key, Term: a.Term + 1}
	for name, x := range map[string]dispatch.Exchange{
		"too many results":             {Results: slices.Repeat([]dispatch.Result{done(a)}, claim.MaxKeys+1)},
		"too many keys":                {Begin: slices.Repeat([]claim.Claim{claimOf(a)}, claim.MaxKeys+1)},
		"too many of both":             {Results: slices.Repeat([]dispatch.Result{done(a)}, claim.MaxKeys), Begin: []claim.Claim{claimOf(a)}},
		"two results of a key":         {Results: []dispatch.Result{done(a), result(a, dispatch.Failed, dispatch.Next)}},
		"a key to start twice":         {Begin: []claim.Claim{claimOf(a), later}},
		"a key under two terms":        {Results: []dispatch.Result{done(a)}, Begin: []claim.Claim{later}},
		"queued":                       {Results: []dispatch.Result{result(a, dispatch.Queued, dispatch.RetryLater)}},
		"submitting":                   {Results: []dispatch.Result{result(a, dispatch.Submitting, dispatch.Hold)}},
		"committed and again":          {Results: []dispatch.Result{result(a, dispatch.Committed, dispatch.RetryLater)}},
		"failed and held":              {Results: []dispatch.Result{result(a, dispatch.Failed, dispatch.Hold)}},
		"pending and done with":        {Results: []dispatch.Result{result(a, dispatch.Pending, dispatch.Next)}},
		"stuck, and not at the target": {Results: []dispatch.Result{result(a, dispatch.Unknown, dispatch.Stuck)}},
		"cancelled":                    {Results: []dispatch.Result{result(a, dispatch.Cancelled, dispatch.Next)}},
		"no state":                     {Results: []dispatch.Result{result(a, "", dispatch.Next)}},
		"nothing after it":             {Results: []dispatch.Result{result(a, dispatch.Committed, "")}},
	} {
		x.Queue, x.Session, x.Window = q, s.ID, window
		if _, err := b.Queue.Exchange(b.ctx, x); !errors.Is(err, lease.ErrInvalid) {
			b.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	// No session is nobody's: the one that free keys have must not pass for one.
	b.settles(s, result(a, dispatch.Delayed, dispatch.RetryLater))
	if b.turn(lease.Session{}, []dispatch.Result{done(a)}).Receipts[0].Accepted {
		b.Error("a result of no session is accepted")
	}
}

func testPayloads(b *bench) {
	s := b.session("a")
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	big := make([]byte, 1<<20)
	random := rand.New(rand.NewPCG(3, 4))
	for i := range big {
		big[i] = byte(random.Uint32())
	}
	payloads := [][]byte{nil, {}, {0}, all, big, []byte(`\x00`), []byte("'; --"), []byte("\xff\xfe")}
	for i, p := range payloads {
		x := dispatch.Message{Queue: q, Key: fmt.Sprint("k", i), ID: fmt.Sprint("b", i), ContentType: `text/x; a="b"`, Payload: p}
		if _, err := b.Admin.Add(b.ctx, []dispatch.Message{x}); err != nil {
			b.Fatalf("Add of %d bytes: %v", len(p), err)
		}
		a := b.starts(s, x.Key)
		r := b.record(x.ID)
		if !bytes.Equal(a.Payload, p) || !bytes.Equal(r.Payload, p) || r.Size != len(p) ||
			a.ContentType != x.ContentType || r.ContentType != x.ContentType {
			b.Errorf("%d bytes came back as %d and %d, of size %d and type %q", len(p), len(a.Payload), len(r.Payload), r.Size, a.ContentType)
		}
	}
}

// testLargePolls: what is polled comes with its payload, too, and so in as many answers as it takes.
func testLargePolls(b *bench) {
	const keys = 4
	s := b.session("a")
	var names []string
	for i := range keys {
		key := fmt.Sprint("k", i)
		names = append(names, key)
		if _, err := b.Admin.Add(b.ctx, []dispatch.Message{{Queue: q, Key: key, ID: key, Payload: make([]byte, dispatch.MaxPayload)}}); err != nil {
			b.Fatalf("Add: %v", err)
		}
	}
	left := b.takes(s, names...)
	for _, c := range left {
		b.settles(s, result(b.begins(s, c), dispatch.Pending, dispatch.Hold))
	}
	polled := map[string]bool{}
	for len(left) > 0 {
		t := b.turn(s, nil, left...)
		if len(t.Begun) == 0 || len(t.Begun) > 2 {
			b.Fatalf("%d of %d messages of 16 MiB are in one answer", len(t.Begun), len(left))
		}
		for _, a := range t.Begun {
			polled[a.Key] = a.Work == dispatch.Poll && len(a.Payload) == dispatch.MaxPayload
			left = slices.DeleteFunc(left, func(c claim.Claim) bool { return c.Key == a.Key })
		}
		for _, c := range left {
			if h := t.Holdings[c.Key]; h != dispatch.Ready && h != dispatch.InProgress {
				b.Errorf("%s, which is not in the answer, is %q", c.Key, h)
			}
		}
	}
	for _, key := range names {
		if !polled[key] {
			b.Errorf("%s was not polled", key)
		}
	}
}

func testHostileText(b *bench) {
	s := b.session("a")
	for i, text := range claimtest.Hostile() {
		// Ids may be as long as keys are.
		x := dispatch.Message{Queue: q, Key: text, ID: text, ContentType: text, Payload: []byte(text)}
		if added, err := b.Admin.Add(b.ctx, []dispatch.Message{x, x}); err != nil || !added[0] || added[1] {
			b.Fatalf("Add %q = %v, %v", text, added, err)
		}
		a := b.starts(s, text)
		if a.Key != text || a.ID != text || a.ContentType != text || string(a.Payload) != text {
			b.Fatalf("%q came back as %+v", text, a)
		}
		r := result(a, dispatch.Failed, dispatch.Block)
		r.Detail, r.Link = strings.Repeat(text, 1+500/len(text)), text
		b.settles(s, r)
		got := b.record(text)
		if got.Detail != r.Detail || got.Link != text || len(got.Trail) == 0 || got.Trail[len(got.Trail)-1].Detail != r.Detail {
			b.Errorf("%q is recorded as %+v", text, got)
		}
		rows, err := b.Admin.Messages(b.ctx, dispatch.MessageQuery{Queue: q, Key: text, IDs: []string{text}})
		if err != nil || len(rows) != 1 || rows[0].ID != text {
			b.Errorf("Messages of %q = %+v, %v", text, rows, err)
		}
		if err := b.Admin.Act(b.ctx, q, text, dispatch.Skip, text); err != nil {
			b.Errorf("Skip of %q: %v", text, err)
		}
		if es := b.events(text); len(es) < 2 {
			b.Errorf("%q has %d events", text, len(es))
		}
		keys, err := b.Admin.Keys(b.ctx, dispatch.KeyQuery{Queue: q, Idle: true})
		if err != nil || len(keys) != i+1 {
			b.Errorf("with %q, %d keys, %v", text, len(keys), err)
		}
	}
}
