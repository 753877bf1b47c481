package shard

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/understudy-ha/understudy/lease"
)

// Space of the leases whose key is a shard: being its primary.
const Space = "shard"

// LeaseID names the lease of a shard's primary.
func LeaseID(shard string) lease.ID { return lease.ID{Space: Space, Key: shard} }

// ValidateName checks the name of a shard: 1 to 64 of a–z, A–Z, 0–9, '-', '_' and '.',
// beginning with a letter or digit, so that it can stand in a key, a URL and a Sentinel's answer as it is.
func ValidateName(name string) error {
	if len(name) == 0 || len(name) > 64 {
		return fmt.Errorf("%w: shard name %.80q: use 1 to 64 characters", lease.ErrInvalid, name)
	}
	for i, c := range []byte(name) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || c != '-' && c != '_' && c != '.') {
			return fmt.Errorf("%w: shard name %q: use letters, digits, '-', '_' and '.', with a letter or digit first", lease.ErrInvalid, name)
		}
	}
	return nil
}

// ValidateNodeID checks a node id: 40 hexadecimal digits, in lower case.
func ValidateNodeID(id string) error {
	ok := len(id) == 40
	for _, c := range []byte(id) {
		ok = ok && (c >= '0' && c <= '9' || c >= 'a' && c <= 'f')
	}
	if !ok {
		return fmt.Errorf("%w: node id %.80q: it is 40 hexadecimal digits", lease.ErrInvalid, id)
	}
	return nil
}

// ValidateAddress checks that an address is HOST:PORT with a port from 1 to 65535. An
// IPv6 host stands in brackets.
func ValidateAddress(what, address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%w: %s %.100q: use HOST:PORT, and [HOST]:PORT for IPv6", lease.ErrInvalid, what, address)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%w: %s %.100q: the port is a number from 1 to 65535", lease.ErrInvalid, what, address)
	}
	if host == "" {
		return fmt.Errorf("%w: %s %.100q: the host is missing; other machines could not reach it", lease.ErrInvalid, what, address)
	}
	for _, c := range host {
		if c > 127 || !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:%", c) {
			return fmt.Errorf("%w: %s %.100q: %q cannot stand in a host's name or number", lease.ErrInvalid, what, address, c)
		}
	}
	return lease.ValidateText(what, address, 1, lease.MaxAddress)
}
