//go:build !linux

package demo

// baseDir is where the folder of the demonstration is made; "" is the usual place.
func baseDir() string { return "" }
