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
	header, err := ParseHeader(b.Header)
	if err != nil {
		return b.wrong(err)
	}
	if err := checkSigned(b.ID, header.Signer); err != nil {
		return b.wrong(err)
	}
	n := 0
	err = b.Transactions(func(t Transaction) error {
		n++
		h, err := t.ParseHeader()
		if err != nil {
			return err
		}
		return checkSigned(t.ID, h.Signer)
	})
	switch {
	case err != nil:
		return b.wrong(fmt.Errorf("transaction %d: %w", n, err))
	case n == 0:
		return b.wrong(fmt.Errorf("%w: it has no transactions; a ledger takes such a batch and never decides", ErrMalformed))
	}
	return nil
}

// Check reports whether the batch is well formed and consistent in itself, as Sawtooth demands before it looks at
// signatures: the header names its transactions in order and each once, all are made for this batcher, every payload is
// the one that its header was signed for.
func (b Batch) Check() error {
	if err := b.CheckForm(); err != nil {
		return err
	}
	header, err := ParseHeader(b.Header)
	if err != nil {
		return b.wrong(err)
	}
	var ids []string
	err = b.Transactions(func(t Transaction) error {
		ids = append(ids, t.ID)
		return t.check(header.Signer)
	})
	if err != nil {
		return b.wrong(fmt.Errorf("transaction %d: %w", len(ids), err))
	}
	if !slices.Equal(ids, header.TransactionIDs) {
		return b.wrong(fmt.Errorf("%w: its header names other transactions than it has", ErrMalformed))
	}
	slices.Sort(ids)
	if len(slices.Compact(ids)) != len(header.TransactionIDs) {
		return b.wrong(fmt.Errorf("%w: it has a transaction twice", ErrMalformed))
	}
	return nil
}

// Verify is Check, and verifies all signatures.
func (b Batch) Verify() error {
	if err := b.Check(); err != nil {
		return err
	}
	header, err := ParseHeader(b.Header)
	if err == nil {
		err = verify(b.ID, header.Signer, b.Header)
	}
	if err != nil {
		return b.wrong(err)
	}
	n := 0
	err = b.Transactions(func(t Transaction) error {
		n++
		h, err := t.ParseHeader()
		if err != nil {
			return err
		}
		return verify(t.ID, h.Signer, t.Header)
	})
	if err != nil {
		return b.wrong(fmt.Errorf("transaction %d: %w", n, err))
	}
	return nil
}

func (b Batch) wrong(err error) error { return fmt.Errorf("batch %.16s…: %w", b.ID, err) }

func (t Transaction) check(batcher string) error {
	h, err := t.ParseHeader()
	sum := sha512.Sum512(t.Payload)
	switch {
	case err != nil:
		return err
	case h.Batcher != batcher:
		return fmt.Errorf("%w: it was made for another batcher", ErrMalformed)
	case h.Digest != hex.EncodeToString(sum[:]):
		return fmt.Errorf("%w: its payload is not the one that its header was signed for", ErrMalformed)
	}
	return nil
}

// checkSigned reports whether a signature and its signer can be such.
func checkSigned(signature, signer string) error {
	if _, err := parseSignature(signature); err != nil {
		return err
	}
	_, err := parseKey(signer)
	return err
}

func verify(signature, signer string, header []byte) error {
	s, err := parseSignature(signature)
	if err != nil {
		return err
	}
	key, err := parseKey(signer)
	if err != nil {
		return err
	}
	if sum := sha256.Sum256(header); !s.Verify(sum[:], key) {
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
