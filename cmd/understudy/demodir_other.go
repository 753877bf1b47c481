//go:build !linux

package main

// demoBase is where the folder of the demonstration is made; "" is the usual place.
func demoBase() string { return "" }
