package sawtooth

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Fields of the messages.
const (
	listBatches = 1

	partHeader    = 1 // of Batch and of Transaction
	partSignature = 2
	partThird     = 3 // transactions of a Batch, payload of a Transaction

	headerSigner       = 1
	headerTransactions = 2

	txnBatcher      = 1
	txnDependencies = 2
	txnFamily       = 3
	txnPayload      = 9
	txnSigner       = 10
)

// Batch is one batch of a list. Its slices point into the list.
type Batch struct {
	ID     string // its header's signature
	Header []byte
	Raw    []byte // the whole message
}

// MaxBatches is the most that a list may hold. A real batch has several hundred
// bytes; a hostile one has two, and would cost fifty times that here.
const MaxBatches = 1 << 15

// ParseList reads a BatchList as far as its batches and their ids.
func ParseList(list []byte) ([]Batch, error) {
	var out []Batch
	err := each(list, func(field protowire.Number, value []byte) error {
		if field != listBatches {
			return nil
		}
		if len(out) == MaxBatches {
			return fmt.Errorf("%w: more than %d batches", ErrMalformed, MaxBatches)
		}
		b, err := parseBatch(value)
		if err != nil {
			return fmt.Errorf("batch %d: %w", len(out)+1, err)
		}
		out = append(out, b)
		return nil
	})
	return out, err
}

func parseBatch(raw []byte) (Batch, error) {
	b := Batch{Raw: raw}
	err := each(raw, func(field protowire.Number, value []byte) (err error) {
		switch field {
		case partHeader:
			b.Header = value
		case partSignature:
			b.ID, err = text(value)
		case partThird:
			_, err = parseTransaction(value)
		}
		return err
	})
	return b, err
}

// List is a BatchList of this batch alone, with its bytes as they were.
func (b Batch) List() []byte {
	out := protowire.AppendTag(make([]byte, 0, len(b.Raw)+16), listBatches, protowire.BytesType)
	return protowire.AppendBytes(out, b.Raw)
}

// OnlyBatch returns the one batch of a list, and an error if there are more, or none.
func OnlyBatch(list []byte) (Batch, error) {
	batches, err := ParseList(list)
	if err == nil && len(batches) != 1 {
		err = fmt.Errorf("%w: it holds %d batches; send exactly one", ErrMalformed, len(batches))
	}
	if err != nil {
		return Batch{}, err
	}
	return batches[0], nil
}

// ValidID reports whether an id has the form of a signature: 128 lower-case
// hexadecimal digits.
func ValidID(id string) bool { return len(id) == 128 && lowerHex(id) }

func lowerHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return s != ""
}

// Transaction is one transaction of a batch.
type Transaction struct {
	ID      string // its header's signature
	Header  []byte
	Payload []byte
}

// Transactions calls f for each transaction of the batch, in order.
func (b Batch) Transactions(f func(Transaction) error) error {
	return each(b.Raw, func(field protowire.Number, value []byte) error {
		if field != partThird {
			return nil
		}
		t, err := parseTransaction(value)
		if err != nil {
			return err
		}
		return f(t)
	})
}

func parseTransaction(raw []byte) (Transaction, error) {
	var t Transaction
	err := each(raw, func(field protowire.Number, value []byte) (err error) {
		switch field {
		case partHeader:
			t.Header = value
		case partSignature:
			t.ID, err = text(value)
		case partThird:
			t.Payload = value
		}
		return err
	})
	return t, err
}
