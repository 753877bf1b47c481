// Package sableplain is a stand-in for a SableDB that serves as the central
// database, for tests: a proxy in front of a real redis-server that lets only those
// commands through that SableDB has, in the forms that its specification names
// (specs: SET with NX and EX alone, EXPIRE without options, …), and answers as SableDB
// does where that differs:
//
//   - every other command, option and place (inside MULTI) is refused, and
//     remembered by [Server.Refused];
//   - a second WATCH would replace the first, and so is refused as a mistake;
//   - TTL rounds up to whole seconds;
//   - INFO is SableDB's text, whatever its arguments.
//
// It is not SableDB: LOCK and UNLOCK are missing, a watched key that expires breaks
// the transaction here as it does on Redis, and nothing is lost by a crash of the
// stand-in.
package sableplain
