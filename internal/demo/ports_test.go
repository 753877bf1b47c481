package demo

import (
	"net"
	"slices"
	"testing"
)

// Nobody is given what someone listens on, nor the same twice.
func TestPorts(t *testing.T) {
	var p ports
	first, err := p.free(5)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", first[2])
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	next, err := p.free(5)
	if err != nil {
		t.Fatal(err)
	}
	again, err := (&ports{}).free(5)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(again, first[2]) || slices.ContainsFunc(next, func(a string) bool { return slices.Contains(first, a) }) {
		t.Errorf("%v, then %v; from the start with %s in use: %v", first, next, first[2], again)
	}
	if _, err := p.free(endPort); err == nil {
		t.Error("more ports than there are")
	}
}
