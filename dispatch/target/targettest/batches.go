package targettest

import (
	"cmp"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"
)

// Signer makes batches that are signed as Sawtooth and Splinter demand. It is safe
// to use from many goroutines.
type Signer struct {
	key    *secp256k1.PrivateKey
	public string
}

// NewSigner derives a key from a seed, so that tests can be repeated.
func NewSigner(seed string) *Signer {
	sum := sha256.Sum256([]byte(seed))
	key := secp256k1.PrivKeyFromBytes(sum[:])
	return &Signer{key: key, public: hex.EncodeToString(key.PubKey().SerializeCompressed())}
}

// Batch is a Batch message with one transaction for each payload, and its id. The
// nonce makes batches of equal payloads different ones.
func (s *Signer) Batch(nonce string, payloads ...string) (id string, batch []byte) {
	return s.Make(Spec{Nonce: nonce, Payloads: payloads})
}

// Spec of a batch.
type Spec struct {
	Nonce    string
	Payloads []string // of one transaction each
	Family   string   // default intkey
	After    []string // ids of the transactions on which each depends
	Forged   bool     // the signature of the last transaction is that of another text
}

// Make makes the batch.
func (s *Signer) Make(spec Spec) (id string, batch []byte) {
	var header, body []byte
	header = appendField(header, 1, []byte(s.public))
	for i, p := range spec.Payloads {
		txnID, txn := s.transaction(spec, i, []byte(p))
		header = appendField(header, 2, []byte(txnID))
		body = appendField(body, 3, txn)
	}
	id = s.sign(header)
	batch = appendField(batch, 1, header)
	batch = appendField(batch, 2, []byte(id))
	return id, append(batch, body...)
}

// One is a BatchList of one batch, and its id.
func (s *Signer) One(nonce string, payloads ...string) (id string, list []byte) {
	id, batch := s.Batch(nonce, payloads...)
	return id, List(batch)
}

// List is a BatchList of batches.
func List(batches ...[]byte) []byte {
	var out []byte
	for _, b := range batches {
		out = appendField(out, 1, b)
	}
	return out
}

func (s *Signer) transaction(spec Spec, n int, payload []byte) (id string, txn []byte) {
	digest := sha512.Sum512(payload)
	var header []byte
	header = appendField(header, 1, []byte(s.public))
	for _, id := range spec.After {
		header = appendField(header, 2, []byte(id))
	}
	header = appendField(header, 3, []byte(cmp.Or(spec.Family, "intkey")))
	header = appendField(header, 4, []byte("1.0"))
	header = appendField(header, 5, []byte("1cf126"))
	header = appendField(header, 6, fmt.Appendf(nil, "%s/%d", spec.Nonce, n))
	header = appendField(header, 7, []byte("1cf126"))
	header = appendField(header, 9, []byte(hex.EncodeToString(digest[:])))
	header = appendField(header, 10, []byte(s.public))
	id = s.sign(header)
	if spec.Forged && n == len(spec.Payloads)-1 {
		id = s.sign(nil)
	}
	txn = appendField(txn, 1, header)
	txn = appendField(txn, 2, []byte(id))
	return id, appendField(txn, 3, payload)
}

func (s *Signer) sign(header []byte) string {
	sum := sha256.Sum256(header)
	return hex.EncodeToString(ecdsa.SignCompact(s.key, sum[:], true)[1:])
}

func appendField(msg []byte, field uint64, value []byte) []byte {
	msg = binary.AppendUvarint(msg, field<<3|2)
	msg = binary.AppendUvarint(msg, uint64(len(value)))
	return append(msg, value...)
}
