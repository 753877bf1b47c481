//go:build !linux

package memtrim

func unmapProgram() {}
