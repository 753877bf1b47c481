// Package wire encodes and decodes the two protocols of a cache: between peers
// ([Codec]) and between clients and a peer ([Encoder],
// [Request], [Reply]). It knows frames, not sockets.
//
// # Numbers
//
// A number is a frame in base 256, the least significant byte first,
// without trailing zero bytes, except that 0 is one zero byte. It is at most 2^53-1.
// Trailing zero bytes are accepted. An empty frame is not a number: it is refused where
// a number is needed, except for the term of a QUESTION, where it is 0.
//
// # Messages of peers
//
// Every message is target, sender, type, and the frames of the type. The target is
// the receiver's url or "*" for all. Another target is refused, also one that starts
// with the receiver's url, which a subscription cannot tell apart. The type is
// one byte, followed by the MAC when a secret is set. Frames in brackets are optional:
// trailing ones that are 0 are left out, so that a message without
// them is what the original sends. Frames after those of the table are ignored.
//
//	QUESTION    Q   key term [config since]
//	ANSWER      A   key term expire vote           vote: 01 is yes, empty is no
//	ENTRYREQ    E   key
//	ANNOUNCE    !   key term expire [stamp config]
//	UPDATE      =   key term expire value [made]
//	PING        .
//	PONG        -
//
// The original ignores these:
//
//	HELLO       h   incarnation echo config members wall flags
//	ACK         k   key term stamp
//	RELEASE     r   key term [used]
//	FAILED      f   key term wait count text
//	REMOVE      x   scope name term                scope: one byte, k, p or e
//	REMOVED     X   scope name term
//	FETCHREQ    F   key
//	MEMBERS     m   step basis 0 0 number 0 (url api)*
//
// incarnation, echo, members and basis are 8 bytes, the most significant first:
// they are not numbers but marks. step is g and basis 0: older versions had others. flags
// is a number: 1 is busy, 2 has storage, 4 found it empty at its start, 8 tells the receiver
// that an earlier life of it had storage. used is 1 when a fetch may have been made in the term.
//
// The MAC is HMAC-SHA256 with the secret over all frames in order, with the
// type frame cut to its type byte, each preceded by its length in 8 bytes, the
// most significant first. It proves that a holder of the secret made the message
// for this target. It does not encrypt, and does not prevent a replay of the message:
// CURVE does both.
//
// # Requests and replies of clients
//
//	GET         id ? expire key [after [flags patience]]
//	DISCOVER    id * expire [() () flags patience]
//
//	keep-alive  id
//	VALUE       id = value expire [made term]
//	SEEOTHER    id #
//	SERVERS     id * list                          list: a msgpack array of strings
//	ERROR       id ! code retry text
//
// id is opaque to the server. expire of a request is the wall clock in Unix
// milliseconds after which the server ignores it; after is a time that the copy must
// outlive. The original ignores flags and patience. flags is a number:
// with 1 the client understands ERROR and the longer VALUE, with 2 it wants a refresh.
// patience is how many milliseconds the client still waits, so that the server
// need not compare its clock with the client's. A client without flag 1
// gets only what the original sends. retry is a number of
// milliseconds, and code one of [Code].
//
// # What it promises
//
//   - Decoding never panics and never keeps more memory than
//     the frames have. A refusal wraps [ErrMalformed] and says which frame.
//   - What [Codec.Decode] accepts encodes to a message that decodes to the same.
//   - The result of [Codec.Decode] shares no memory with the frames. The results of
//     [Request.Decode] and [Reply.Decode] do: they are valid only
//     as long as the frames are.
//
// # What it does not promise
//
// Without a secret, that the sender is genuine; that it is a member; that a
// term, a time or a url makes sense beyond its range and length.
package wire
