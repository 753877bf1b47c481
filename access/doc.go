// Package access says who may do what through the API: tokens with scopes, which a store keeps for all
// servers on it.
//
// A [Token] is a name, its scopes, and the SHA-256 of a secret that is shown once, when the token is
// made. The store never has the secret, and the secret holds the token's id, so that a token is found by its
// id and only one comparison, in constant time, tells whether it is the right one.
//
// # What it promises
//
// A token that was added is in every list read afterwards, and one that was revoked is revoked for good. Both
// leave an event in the history, written by the very operation, with who did it. No two tokens that live
// have one name, so that the name in an event tells whose act it was.
//
// # What it does not
//
// It forgets tokens that are over: after [KeepEnded], or when they have to make room, because there may be
// [MaxTokens]. It does not end what a token began: that is the server's, see package api. A store that loses
// what it acknowledged, as Redis may at a failover, may lose a revocation as well: look at the list then.
//
// # States
//
// A token lives from its making until it expires, if it does, or is revoked. There is no way back: make
// another.
//
// # How it fails
//
// As the store does: lease.ErrUnavailable when nothing was done, lease.ErrUnknown when it may have been. Both
// [Tokens.Add] and [Tokens.Revoke] may then be called again with the same token, or id.
package access
