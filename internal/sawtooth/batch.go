package sawtooth

import (
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"slices"

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

	txnBatcher = 1
	txnPayload = 9
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

// OnlyID returns the id of the one batch of a list, and an error if there are
// more, or none, or if the id cannot be one.
func OnlyID(list []byte) (string, error) {
	batches, err := ParseList(list)
	switch {
	case err != nil:
		return "", err
	case len(batches) != 1:
		return "", fmt.Errorf("%w: it holds %d batches; send exactly one", ErrMalformed, len(batches))
	case !ValidID(batches[0].ID):
		return "", fmt.Errorf("%w: its header signature is not 128 lower-case hexadecimal digits", ErrMalformed)
	}
	return batches[0].ID, nil
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

// BatchHeader is what a batch's signature covers.
type BatchHeader struct {
	Signer         string
	TransactionIDs []string
}

// ParseHeader reads a BatchHeader.
func ParseHeader(raw []byte) (BatchHeader, error) {
	var h BatchHeader
	err := each(raw, func(field protowire.Number, value []byte) (err error) {
		switch field {
		case headerSigner:
			h.Signer, err = text(value)
		case headerTransactions:
			if !ValidID(string(value)) {
				return fmt.Errorf("%w: it names a transaction that cannot be one", ErrMalformed)
			}
			h.TransactionIDs = append(h.TransactionIDs, string(value))
		}
		return err
	})
	return h, err
}

// Check reports whether the batch is consistent in itself, as every ledger demands
// before it looks at signatures: ids of the right form, the header naming its
// transactions in order and each once, all made for this batcher, every payload
// the one that its header was signed for.
func (b Batch) Check() error {
	if !ValidID(b.ID) {
		return fmt.Errorf("%w: a batch's header signature is not 128 lower-case hexadecimal digits", ErrMalformed)
	}
	header, err := ParseHeader(b.Header)
	if err != nil {
		return fmt.Errorf("header of batch %.16s…: %w", b.ID, err)
	}
	if !lowerHex(header.Signer) {
		return fmt.Errorf("%w: batch %.16s… names no public key of its signer", ErrMalformed, b.ID)
	}
	var ids []string
	err = b.Transactions(func(t Transaction) error {
		ids = append(ids, t.ID)
		return t.check(header.Signer)
	})
	if err != nil {
		return fmt.Errorf("batch %.16s…, transaction %d: %w", b.ID, len(ids), err)
	}
	if !slices.Equal(ids, header.TransactionIDs) {
		return fmt.Errorf("%w: the header of batch %.16s… names other transactions than the batch has", ErrMalformed, b.ID)
	}
	slices.Sort(ids)
	if len(slices.Compact(ids)) != len(header.TransactionIDs) {
		return fmt.Errorf("%w: batch %.16s… has a transaction twice", ErrMalformed, b.ID)
	}
	return nil
}

func (t Transaction) check(batcher string) error {
	if !ValidID(t.ID) {
		return fmt.Errorf("%w: its header signature is not 128 lower-case hexadecimal digits", ErrMalformed)
	}
	var by, digest string
	err := each(t.Header, func(field protowire.Number, value []byte) (err error) {
		switch field {
		case txnBatcher:
			by, err = text(value)
		case txnPayload:
			digest, err = text(value)
		}
		return err
	})
	sum := sha512.Sum512(t.Payload)
	switch {
	case err != nil:
		return fmt.Errorf("header: %w", err)
	case by != batcher:
		return fmt.Errorf("%w: it was made for another batcher", ErrMalformed)
	case digest != hex.EncodeToString(sum[:]):
		return fmt.Errorf("%w: its payload is not the one that its header was signed for", ErrMalformed)
	}
	return nil
}
