// Package settings is the file of a server: what may stand in it, what it means, and what is wrong with it.
//
// It promises that all mistakes are told at once, with their lines, as far as they can be found without a store; that
// flags go before the environment, and that before the file; that secrets are shown to nobody; and that a file which
// passes makes every part that it names. It reads the files that are named in it, and opens nothing else: what runs is
// package server's. What is wrong with a file is an error that is usererr.Err, or of the kinds lease.ErrInvalid,
// lease.ErrUnsafeTiming and cache.ErrConfig.
package settings
