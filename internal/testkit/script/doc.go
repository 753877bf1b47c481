// Package script replays scripts: text files that say what happens to a part, and what the part does then. It is
// for tests alone.
//
// In a transcript ([Transcripts]), a line that begins with "--" begins a section, which has a new part; a line that
// begins with "> " is an input, and the lines that follow it are what the part did. Lines that are empty or begin
// with "#" are for readers. Run the test with -rewrite to have the files say what the part really does, and read
// the difference.
//
// In a table ([Table]), each line is an input and the answer to it, with "->" between.
package script
