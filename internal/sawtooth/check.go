package sawtooth

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"
)

// CheckForm reports whether a ledger can judge the batch at all: it has transactions, and signatures and keys that can
// be such. To anything else a ledger answers that it failed (500), or it takes it and never decides.
func (b Batch) CheckForm() error {
	_, err := b.parse()
	return err
}

// Check reports whether the batch is well formed and consistent in itself, as Sawtooth demands before it looks at
// signatures: the header names its transactions in order and each once, all are made for this batcher, every payload is
// the one that its header was signed for.
func (b Batch) Check() error {
	p, err := b.parse()
	if err == nil {
		err = b.checkConsistent(p)
	}
	return err
}

// Verify is Check, and verifies all signatures.
func (b Batch) Verify() error {
	p, err := b.parse()
	if err != nil {
		return err
	}
	if err := b.checkConsistent(p); err != nil {
		return err
	}
	if err := p.signed.verify(); err != nil {
		return b.wrong(err)
	}
	for i, t := range p.transactions {
		if err := t.signed.verify(); err != nil {
			return b.wrongTransaction(i+1, err)
		}
	}
	return nil
}

// parsed is a batch of which CheckForm has nothing to say.
type parsed struct {
	header       BatchHeader
	signed       signed
	transactions []parsedTransaction
}

type parsedTransaction struct {
	Transaction
	header TransactionHeader
	signed signed
}

func (b Batch) parse() (p parsed, err error) {
	if p.header, err = ParseHeader(b.Header); err != nil {
		return p, b.wrong(err)
	}
	if p.signed, err = parseSigned(b.ID, p.header.Signer, b.Header); err != nil {
		return p, b.wrong(err)
	}
	n := 0
	err = b.Transactions(func(t Transaction) (err error) {
		n++
		one := parsedTransaction{Transaction: t}
		if one.header, err = t.ParseHeader(); err != nil {
			return err
		}
		one.signed, err = parseSigned(t.ID, one.header.Signer, t.Header)
		p.transactions = append(p.transactions, one)
		return err
	})
	switch {
	case err != nil:
		return p, b.wrongTransaction(n, err)
	case n == 0:
		return p, b.wrong(fmt.Errorf("%w: it has no transactions; a ledger takes such a batch and never decides", ErrMalformed))
	}
	return p, nil
}

func (b Batch) checkConsistent(p parsed) error {
	ids := make([]string, len(p.transactions))
	for i, t := range p.transactions {
		ids[i] = t.ID
		if err := t.check(p.header.Signer); err != nil {
			return b.wrongTransaction(i+1, err)
		}
	}
	if !slices.Equal(ids, p.header.TransactionIDs) {
		return b.wrong(fmt.Errorf("%w: its header names other transactions than it has", ErrMalformed))
	}
	slices.Sort(ids)
	if len(slices.Compact(ids)) != len(p.header.TransactionIDs) {
		return b.wrong(fmt.Errorf("%w: it has a transaction twice", ErrMalformed))
	}
	return nil
}

func (b Batch) wrongTransaction(n int, err error) error {
	return b.wrong(fmt.Errorf("transaction %d: %w", n, err))
}

func (b Batch) wrong(err error) error { return fmt.Errorf("batch %.16s…: %w", b.ID, err) }

func (t parsedTransaction) check(batcher string) error {
	sum := sha512.Sum512(t.Payload)
	switch {
	case t.header.Batcher != batcher:
		return fmt.Errorf("%w: it was made for another batcher", ErrMalformed)
	case t.header.Digest != hex.EncodeToString(sum[:]):
		return fmt.Errorf("%w: its payload is not the one that its header was signed for", ErrMalformed)
	}
	return nil
}

// signed is a header with its signature and the key of its signer: both can be such.
type signed struct {
	signature *ecdsa.Signature
	key       *secp256k1.PublicKey
	header    []byte
}

func parseSigned(signature, signer string, header []byte) (s signed, err error) {
	s.header = header
	if s.signature, err = parseSignature(signature); err == nil {
		s.key, err = parseKey(signer)
	}
	return s, err
}

func (s signed) verify() error {
	if sum := sha256.Sum256(s.header); !s.signature.Verify(sum[:], s.key) {
		return fmt.Errorf("%w: its signature does not fit its header", ErrMalformed)
	}
	return nil
}

// parseSignature reads the two numbers of a compact signature.
func parseSignature(id string) (*ecdsa.Signature, error) {
	if !ValidID(id) {
		return nil, fmt.Errorf("%w: its header signature is not 128 lower-case hexadecimal digits", ErrMalformed)
	}
	raw, err := hex.DecodeString(id)
	if err != nil {
		return nil, fmt.Errorf("%w: its header signature: %w", ErrMalformed, err)
	}
	var r, s secp256k1.ModNScalar
	if r.SetByteSlice(raw[:32]) || s.SetByteSlice(raw[32:]) || r.IsZero() || s.IsZero() {
		return nil, fmt.Errorf("%w: its header signature has a number that no signature has", ErrMalformed)
	}
	return ecdsa.NewSignature(&r, &s), nil
}

func parseKey(signer string) (*secp256k1.PublicKey, error) {
	raw, err := hex.DecodeString(signer)
	if err == nil {
		var key *secp256k1.PublicKey
		if key, err = secp256k1.ParsePubKey(raw); err == nil {
			return key, nil
		}
	}
	return nil, fmt.Errorf("%w: the public key of its signer, %.70q, is not one of secp256k1 in hexadecimal digits", ErrMalformed, signer)
}
