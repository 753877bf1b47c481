// Package archtest holds no code but the test that keeps the house in order: which
// package may import which, that every package says what it is, and that files
// and functions stay small enough to be read at one sitting.
package archtest
