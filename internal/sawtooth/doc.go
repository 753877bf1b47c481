// Package sawtooth reads the batches of Hyperledger Sawtooth and Splinter: the
// protobuf messages BatchList, Batch, BatchHeader, Transaction and
// TransactionHeader, as far as ids and consistency need it. It also knows how the
// reasons for which a batch was found invalid are kept as one line of text, and
// how a Splinter service is named.
//
// It promises that what it reads is what any protobuf implementation reads
// (unknown fields are skipped, the last of repeated scalars counts), that it
// never panics or allocates more than a small multiple of its input, and that a
// batch taken out of a list keeps its bytes.
//
// Every error about a message wraps [ErrMalformed].
package sawtooth
