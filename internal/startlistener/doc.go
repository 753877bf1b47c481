// Package startlistener answers on a server's port from the first moment, before there is anything behind it.
//
// It promises that whoever asks meanwhile hears that the process is up, that nothing can be said yet, and what it waits
// for, instead of a connection that hangs; and that closing lets requests which are being answered finish, for a few
// seconds. Listening refuses an address that cannot be one with a sentence. The connections are bounded, as are those of a
// further port (Serve). Who may come in is for the handler to say.
package startlistener
