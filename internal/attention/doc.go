// Package attention judges what needs an operator's attention, the same for everything that shows it: the overview of the
// API, and so the page and "understudy status", and the doctor.
//
// Its functions are pure: each gets one subject of a part as it was read, and returns what is wrong with it. It promises that whatever it returns says what an operator can do, and where that is explained. It
// reads nothing, and does not bound what it returns.
package attention
