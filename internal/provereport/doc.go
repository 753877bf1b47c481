// Command provereport reads what "go test -json" prints of the long tests and makes one table of it: which
// fault of which part was tried how often, and how often a promise was broken. It tells
// of each test as it ends, prints the output of those that fail, and ends with 1 if one did, if one or
// its package did not end, or if none ran. Tests that were skipped are named, with why.
//
// A test that tries many things says so with the attribute "tried", whose value is a number
// and what was tried; any other counts as one try of what its name says. With -o the table is written as a page
// of the documentation, too, with the seeds that tests said, times and the machine. Pieces that were run one after the other make one table:
// their outputs together are the input.
package main
