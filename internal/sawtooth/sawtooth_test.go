package sawtooth_test

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/understudy-ha/understudy/dispatch/target/targettest"
	"github.com/understudy-ha/understudy/internal/sawtooth"
)

// schema builds the messages of a batch list for the published implementation of
// protobuf, against which this one is held.
func schema(tb testing.TB) protoreflect.FileDescriptor {
	tb.Helper()
	field := func(name string, n int32, kind descriptorpb.FieldDescriptorProto_Type, label descriptorpb.FieldDescriptorProto_Label, of string) *descriptorpb.FieldDescriptorProto {
		f := &descriptorpb.FieldDescriptorProto{Name: &name, Number: &n, Type: &kind, Label: &label}
		if of != "" {
			f.TypeName = &of
		}
		return f
	}
	one, many := descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL, descriptorpb.FieldDescriptorProto_LABEL_REPEATED
	text, raw, message := descriptorpb.FieldDescriptorProto_TYPE_STRING, descriptorpb.FieldDescriptorProto_TYPE_BYTES, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE
	made, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: new("batch.proto"), Syntax: new("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{
			{Name: new("BatchList"), Field: []*descriptorpb.FieldDescriptorProto{field("batches", 1, message, many, ".Batch")}},
			{Name: new("Batch"), Field: []*descriptorpb.FieldDescriptorProto{
				field("header", 1, raw, one, ""), field("header_signature", 2, text, one, ""),
				field("transactions", 3, message, many, ".Transaction"),
				field("trace", 4, descriptorpb.FieldDescriptorProto_TYPE_BOOL, one, ""),
			}},
			{Name: new("Transaction"), Field: []*descriptorpb.FieldDescriptorProto{
				field("header", 1, raw, one, ""), field("header_signature", 2, text, one, ""), field("payload", 3, raw, one, ""),
			}},
		},
	}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return made
}

type txn struct{ ID, Header, Payload string }

type batch struct {
	ID, Header string
	Txns       []txn
}

// published reads a list with the published implementation.
func published(file protoreflect.FileDescriptor, list []byte) ([]batch, error) {
	m := dynamicpb.NewMessage(file.Messages().ByName("BatchList"))
	if err := proto.Unmarshal(list, m); err != nil {
		return nil, err
	}
	get := func(m protoreflect.Message, n protoreflect.FieldNumber) protoreflect.Value {
		return m.Get(m.Descriptor().Fields().ByNumber(n))
	}
	var out []batch
	batches := get(m, 1).List()
	for i := range batches.Len() {
		b := batches.Get(i).Message()
		got := batch{ID: get(b, 2).String(), Header: string(get(b, 1).Bytes())}
		txns := get(b, 3).List()
		for j := range txns.Len() {
			t := txns.Get(j).Message()
			got.Txns = append(got.Txns, txn{get(t, 2).String(), string(get(t, 1).Bytes()), string(get(t, 3).Bytes())})
		}
		out = append(out, got)
	}
	return out, nil
}

func ours(list []byte) ([]batch, error) {
	parsed, err := sawtooth.ParseList(list)
	if err != nil {
		return nil, err
	}
	var out []batch
	for _, b := range parsed {
		got := batch{ID: b.ID, Header: string(b.Header)}
		err := b.Transactions(func(t sawtooth.Transaction) error {
			got.Txns = append(got.Txns, txn{t.ID, string(t.Header), string(t.Payload)})
			return nil
		})
		if err != nil {
			return nil, err
		}
		out = append(out, got)
	}
	return out, nil
}

func FuzzParseList(f *testing.F) {
	file := schema(f)
	signer := targettest.NewSigner("fuzz")
	_, one := signer.Batch("1", "a", "b")
	_, two := signer.Batch("2", "")
	whole := targettest.List(one, two)
	for _, seed := range [][]byte{
		nil, whole, whole[:len(whole)-1], targettest.List(one[1:]),
		append(bytes.Clone(whole), 0x12, 0x01, 'x'),        // an unknown field
		append(bytes.Clone(whole), 0x13, 0x08, 0x01, 0x14), // a group
		append(bytes.Clone(whole), 0x13, 0x1b, 0x1c, 0x14), // in a group
		append(bytes.Clone(whole), 0x13, 0x08, 0x01, 0x1c), // that ends as another
		{0x08, 0x01}, {0x09, 1, 2, 3, 4, 5, 6, 7, 8}, {0x0d, 1}, // known field, other wire types
		{0x00}, {0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, {0x0a, 2, 0x20, 0x01},
		{0x0a, 0x03, 0x12, 0x01, 0xff},                 // a signature that is no text
		{0x0a, 0x06, 0x12, 0x01, 'a', 0x12, 0x01, 'b'}, // given twice
		{0x0f}, {0x0e}, {0xfa, 0xff, 0xff, 0xff, 0x0f, 0x00}, // reserved wire types, the largest field
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, list []byte) {
		want, wantErr := published(file, list)
		got, err := ours(list)
		if len(want) > sawtooth.MaxBatches {
			return
		}
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("error %v, the published implementation has %v", err, wantErr)
		}
		if err != nil {
			if !errors.Is(err, sawtooth.ErrMalformed) {
				t.Fatalf("%v does not wrap ErrMalformed", err)
			}
			return
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
		parsed, _ := sawtooth.ParseList(list)
		for i, b := range parsed {
			_ = b.Check()
			again, err := ours(b.List())
			if err != nil || len(again) != 1 {
				t.Fatalf("a batch by itself: %v, %v", again, err)
			}
			if diff := cmp.Diff(got[i], again[0]); diff != "" {
				t.Fatal(diff)
			}
		}
	})
}

func parseOne(t *testing.T, list []byte) sawtooth.Batch {
	t.Helper()
	parsed, err := sawtooth.ParseList(list)
	if err != nil || len(parsed) != 1 {
		t.Fatalf("%d batches, %v", len(parsed), err)
	}
	return parsed[0]
}

func TestCheck(t *testing.T) {
	signer := targettest.NewSigner("check")
	id, list := signer.One("1", "first payload", "second payload")
	good := parseOne(t, list)
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	if got, err := sawtooth.OnlyBatch(list); err != nil || got.ID != id {
		t.Fatalf("id %q, %v", got, err)
	}
	_, other := signer.Batch("2", "first payload", "second payload")
	swap := func(list []byte, from, to string) []byte {
		if !bytes.Contains(list, []byte(from)) || len(from) != len(to) {
			t.Fatalf("cannot put %q for %q", to, from)
		}
		return bytes.ReplaceAll(list, []byte(from), []byte(to))
	}
	var txns []string
	if err := good.Transactions(func(t sawtooth.Transaction) error { txns = append(txns, t.ID); return nil }); err != nil {
		t.Fatal(err)
	}
	otherHeader := parseOne(t, targettest.List(other)).Header
	_, empty := signer.Batch("3")
	_, foreign := targettest.NewSigner("stranger").One("1", "x")
	stranger := parseOne(t, foreign)
	_, needs := signer.Make(targettest.Spec{Nonce: "4", Payloads: []string{"x"}, After: []string{txns[0]}})
	if err := parseOne(t, targettest.List(needs)).Check(); err != nil {
		t.Error(err)
	}
	_, dense := signer.Make(targettest.Spec{Nonce: "5", Payloads: []string{"x"}, After: []string{""}}) // two bytes each, eight times as many in memory
	for name, c := range map[string]struct {
		list []byte
		want string
	}{
		"another payload":         {swap(list, "first payload", "FIRST payload"), "payload is not the one"},
		"another header":          {swap(list, string(good.Header), string(otherHeader)), "names other transactions"},
		"id in upper case":        {swap(list, id, strings.ToUpper(id)), "128 lower-case"},
		"a transaction renamed":   {swap(swap(list, txns[0], strings.Repeat("0", 128)), strings.Repeat("0", 128), strings.Repeat("x", 128)), "cannot be one"},
		"a transaction twice":     {swap(list, txns[1], txns[0]), "twice"},
		"of another batcher":      {bytes.Replace(list, signerOf(t, good), signerOf(t, stranger), 1), "another batcher"},
		"a batch, not a list":     {other, "malformed"},
		"no header, no signature": {targettest.List(nil), "128 lower-case"},
		"no transactions":         {targettest.List(empty), "it has no transactions"},
		"a number out of range":   {swap(list, id, strings.Repeat("f", 128)), "a number that no signature has"},
		"a transaction's is zero": {swap(list, txns[1], strings.Repeat("0", 128)), "transaction 2: malformed batch list: its header signature has a number"},
		"depends on nothing":      {targettest.List(dense), "transaction 1: header: malformed batch list: it depends on a transaction that cannot be one"},
		"a signer that is no hex": {bytes.Replace(list, signerOf(t, good), bytes.Repeat([]byte("x"), 66), 1), "is not one of secp256k1"},
	} {
		t.Run(name, func(t *testing.T) {
			err := parseOne(t, c.list).Check()
			if !errors.Is(err, sawtooth.ErrMalformed) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want one that says %q", err, c.want)
			}
		})
	}
}

func signerOf(t *testing.T, b sawtooth.Batch) []byte {
	t.Helper()
	h, err := sawtooth.ParseHeader(b.Header)
	if err != nil {
		t.Fatal(err)
	}
	return []byte(h.Signer)
}

func TestVerify(t *testing.T) {
	signer := targettest.NewSigner("verify")
	id, list := signer.One("1", "first", "second")
	good := parseOne(t, list)
	if err := good.Verify(); err != nil {
		t.Fatal(err)
	}
	otherID, _ := signer.One("2", "third")
	_, forged := signer.Make(targettest.Spec{Nonce: "1", Payloads: []string{"first", "second"}, Forged: true})
	for want, wrong := range map[string][]byte{
		"…: malformed batch list: its signature does not fit":                bytes.ReplaceAll(list, []byte(id), []byte(otherID)),
		"…: transaction 2: malformed batch list: its signature does not fit": targettest.List(forged),
	} {
		b := parseOne(t, wrong)
		if err := b.Check(); err != nil {
			t.Errorf("%s: all but that is good: %v", want, err)
		}
		if err := b.Verify(); !errors.Is(err, sawtooth.ErrMalformed) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestOnlyBatch(t *testing.T) {
	signer := targettest.NewSigner("only")
	_, a := signer.Batch("1", "x")
	_, b := signer.Batch("2", "x")
	for name, list := range map[string][]byte{
		"none": nil, "two": targettest.List(a, b), "no list": []byte("hello"),
	} {
		if b, err := sawtooth.OnlyBatch(list); err == nil {
			t.Errorf("%s: taken as %q", name, b.ID)
		}
	}
}

// TestHostileLists holds what a list may cost to a multiple of its size.
func TestHostileLists(t *testing.T) {
	const size = 4 << 20
	for name, list := range map[string][]byte{
		"empty batches":      bytes.Repeat([]byte{0x0a, 0x00}, size/2),
		"empty transactions": targettest.List(bytes.Repeat([]byte{0x1a, 0x00}, size/2)),
		"empty ids":          targettest.List(append([]byte{0x0a, 0xfe, 0xff, 0xff, 0x01}, bytes.Repeat([]byte{0x12, 0x00}, (4<<20-2)/2)...)),
		"deep groups":        bytes.Repeat([]byte{0x13}, size),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			parsed, err := sawtooth.ParseList(list)
			if err == nil && len(parsed) == 1 {
				err = parsed[0].Check()
			}
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Fatal("taken")
			}
			if got := after.TotalAlloc - before.TotalAlloc; got > 4*size {
				t.Errorf("%d bytes for a list of %d", got, size)
			}
		})
	}
}

func TestReasons(t *testing.T) {
	signer := targettest.NewSigner("reasons")
	_, list := signer.One("1", "a", "b", "c")
	var ids []string
	_ = parseOne(t, list).Transactions(func(t sawtooth.Transaction) error { ids = append(ids, t.ID); return nil })
	want := []sawtooth.Reason{
		{Transaction: ids[0], Message: "not enough; try 5"},
		{Transaction: ids[2], Message: `verb is "dec"`},
	}
	text := sawtooth.ReasonText(want)
	if diff := cmp.Diff(want, sawtooth.ReasonsOf(text, ids)); diff != "" {
		t.Error(diff)
	}
	// Scabbard names the good transactions too, first; Sawtooth may name the bad one five times.
	fell := []sawtooth.Reason{{Transaction: ids[0], Message: "containing batch (" + strings.Repeat("f", 128) + ") is invalid"}}
	if diff := cmp.Diff(text, sawtooth.ReasonText(append(append(fell, want...), want...))); diff != "" {
		t.Error(diff)
	}
	if got := sawtooth.ReasonText(append(fell, fell...)); !strings.Contains(got, "containing batch") || strings.Contains(got, "; ") {
		t.Errorf("where no transaction says why: %q", got)
	}
	if strings.Contains(sawtooth.ReasonText([]sawtooth.Reason{{Message: "a\x00b\nc"}}), "\n") {
		t.Error("a line feed went through")
	}
	foreign := []sawtooth.Reason{{Transaction: ids[0], Message: "given up"}}
	if diff := cmp.Diff(foreign, sawtooth.ReasonsOf("given up", ids)); diff != "" {
		t.Error(diff)
	}
	if got := sawtooth.ReasonsOf("given up", nil); got != nil {
		t.Errorf("reasons of no transaction: %v", got)
	}
}

func TestParseService(t *testing.T) {
	circuit, service, err := sawtooth.ParseService("abcde-12345::gsAA")
	if err != nil || circuit != "abcde-12345" || service != "gsAA" {
		t.Errorf("%s %s %v", circuit, service, err)
	}
	for _, bad := range []string{"", "----", "abcde-12345", "abcde-12345::", "abcde-12345:gsAA", "abcd-12345::gsAA", "abcdef12345::gsAA", "abcde-12345::gs/..", "ab/..-12345::gsAA", "abcde-12345::gsAA::x"} {
		if _, _, err := sawtooth.ParseService(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
