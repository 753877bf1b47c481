// Package access defines who may do what through the API: tokens with scopes, which a store keeps for all
// its servers.
//
// A [Token] is a name, its scopes, and the SHA-256 of a secret that is shown once, when the token is
// made. The store never has the secret. The secret contains the token's ID, so a token is found by
// ID and one comparison in constant time checks it.
//
// # What it promises
//
// A token that was added is in every later list, and a revoked token stays revoked. Both
// operations write their event in the history, with the caller. No two live tokens
// have the same name, so the name in an event identifies the token.
//
// # What it does not promise
//
// It forgets ended tokens after [KeepEnded], or earlier to make room for new ones (at most
// [MaxTokens]). It does not end what a token started: the server does, see package api. A store that loses
// acknowledged writes, as Redis may at a failover, can lose a revocation: check the list then.
//
// # States
//
// A token is live until it expires, if it does, or is revoked. There is no way back: make
// another.
//
// # How it fails
//
// As the store does: lease.ErrUnavailable when nothing was done, lease.ErrUnknown when it may have been. Both
// [Tokens.Add] and [Tokens.Revoke] may then be repeated with the same token or ID.
package access
