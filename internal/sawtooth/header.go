package sawtooth

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

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

// TransactionHeader is what a transaction's signature covers, as far as it matters here.
type TransactionHeader struct {
	Batcher, Signer string // public keys
	Family          string
	Dependencies    []string // ids of transactions
	Digest          string   // of the payload
}

// ParseHeader reads the header of a transaction.
func (t Transaction) ParseHeader() (TransactionHeader, error) {
	var h TransactionHeader
	err := each(t.Header, func(field protowire.Number, value []byte) (err error) {
		switch field {
		case txnBatcher:
			h.Batcher, err = text(value)
		case txnDependencies:
			// Empty ones would take eight times as much memory as they have bytes.
			if !ValidID(string(value)) {
				return fmt.Errorf("%w: it depends on a transaction that cannot be one", ErrMalformed)
			}
			h.Dependencies = append(h.Dependencies, string(value))
		case txnFamily:
			h.Family, err = text(value)
		case txnPayload:
			h.Digest, err = text(value)
		case txnSigner:
			h.Signer, err = text(value)
		}
		return err
	})
	if err != nil {
		return h, fmt.Errorf("header: %w", err)
	}
	return h, nil
}
