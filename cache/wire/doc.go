// Package wire has the bytes of the two protocols of a cache: that of the peers
// among each other ([Codec]) and that of clients with a peer ([Encoder],
// [Request], [Reply]). It knows frames, not sockets.
//
// # Numbers
//
// A number is a frame with its bytes in base 256, the least significant first,
// without zeros at the end, except that 0 is one zero byte. It is at most 2^53-1.
// Zeros at the end are accepted. An empty frame is no number: it is refused where
// a number is needed, except for the term of a QUESTION, where it is 0.
//
// # Messages of peers
//
// Every message is target, sender, type, and what the type says. The target is
// the receiver's url or "*" for all; another one is refused, also when it begins
// with the receiver's url, which is all that a subscription can tell. The type is
// one byte, followed by the MAC when a secret is set. Frames in brackets are left
// out from the first one on after which all are 0, so that a message without
// them is what the original sends; where a later one is needed, an earlier one is
// sent as 0. Frames that come after those of the table are ignored.
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
//	MEMBERS     m   "g" 0 0 0 number 0 (url api)*
//
// incarnation, echo, members and basis are 8 bytes, the most significant first:
// they are not numbers but marks. step is one byte. flags is a number: 1 is busy,
// 2 is keeps. used is 1 when a fetch may have been made in the term.
//
// The MAC is HMAC-SHA256 with the secret over all frames in their order, with the
// type frame cut to its type byte, each preceded by its length in 8 bytes, the
// most significant first. It proves that a holder of the secret made the message
// for this target. It does not hide anything, and does not keep anybody from
// sending the same message again later: CURVE does both.
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
// milliseconds after which the server ignores it, after that which the copy must
// outlive. flags and patience are what the original ignores: flags is a number,
// with 1 the client knows ERROR and the longer VALUE, with 2 it wants a refresh;
// patience is for how many milliseconds it will still wait, so that the server
// need not compare its clock with the client's. A client that has not set flag 1
// is sent what the original sends, and nothing else. retry is a number of
// milliseconds, and code one of [Code].
//
// # What it promises
//
//   - Decoding never panics, whatever it is given, and never keeps more memory than
//     the frames have. What is refused wraps [ErrMalformed] and says which frame.
//   - What [Codec.Decode] accepts encodes to a message that decodes to the same.
//   - What [Codec.Decode] returns has nothing in common with the frames. What
//     [Request.Decode] and [Reply.Decode] return is part of them: it is valid only
//     as long as they are.
//
// # What it does not promise
//
// That the sender is who it says, without a secret; that it is a member; that a
// term, a time or a url makes sense beyond its range and length.
package wire
