// Package recorder runs a check on what is known to be broken, so that a test of the check can report whether
// it was caught. It is for tests alone.
//
// What the check finds does not fail the test that runs it, and neither does a panic. All else that the check
// asks of its test, like a directory or a clean-up, is that test's own. It has no deadline: a check that
// hangs is ended with the test.
package recorder
