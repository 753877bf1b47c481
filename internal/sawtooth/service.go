package sawtooth

import (
	"fmt"
	"strings"
)

// circuitLength is that of a circuit's name: five letters or digits, '-', five more.
const circuitLength = 11

// ParseService takes a Splinter service's full name apart: CIRCUIT::SERVICE.
func ParseService(name string) (circuit, service string, err error) {
	circuit, service, ok := strings.Cut(name, "::")
	if !ok || len(circuit) != circuitLength || circuit[5] != '-' ||
		!alphanumeric(circuit[:5]) || !alphanumeric(circuit[6:]) || !alphanumeric(service) {
		return "", "", fmt.Errorf("%q is not the name of a service; write CIRCUIT::SERVICE, for instance abcde-12345::gsAA", name)
	}
	return circuit, service, nil
}

func alphanumeric(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return s != ""
}
