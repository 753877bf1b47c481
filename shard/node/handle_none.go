//go:build !unix

package node

import (
	"errors"
	"syscall"
)

type handle struct{}

func open(int) (*handle, error) { return nil, errors.ErrUnsupported }

func (*handle) wait(<-chan struct{}) bool   { return false }
func (*handle) ended() bool                 { return true }
func (*handle) signal(syscall.Signal) error { return errors.ErrUnsupported }
func (*handle) close()                      {}

func selfPath() string { return "" }

func apart() *syscall.SysProcAttr { return nil }

func startOf(int) (string, error) { return "", errors.ErrUnsupported }

func bootID() string { return "" }

func listens(int, string) error { return errors.ErrUnsupported }

func listener(string) (int, error) { return 0, errors.ErrUnsupported }
