package redis

import (
	"errors"
	"fmt"
	"strings"

	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/engine/wire"
)

// refusal is the error for a command that the node answered with one. Arguments
// may be secrets, and are not shown.
func (n *Node) refusal(command []string, err error) error {
	name := command[0]
	if name == "CONFIG" || name == "CLIENT" {
		name += " " + command[1]
	}
	answer, ok := errors.AsType[wire.ServerError](err)
	if !ok {
		return err
	}
	text := string(answer)
	switch answer.Code() {
	case "NOAUTH":
		return fmt.Errorf("%w: node %s: %s: %s (give its agent --password-file)", shard.ErrNodeAccess, n.address, name, text)
	case "WRONGPASS", "DENIED":
		return fmt.Errorf("%w: node %s: %s: %s", shard.ErrNodeAccess, n.address, name, text)
	case "NOPERM":
		return fmt.Errorf("%w: node %s: %s: %s; its user needs: %s", shard.ErrNodeAccess, n.address, name, text, Rights)
	case "NOREPLICAS", "READONLY", "MASTERDOWN":
		return fmt.Errorf("%w: node %s: %s", shard.ErrNodeRefused, n.address, text)
	case "MISCONF", "BUSY", "LOADING", "OOM":
		return fmt.Errorf("%w: node %s: %s: %s", shard.ErrNodeUnhealthy, n.address, name, text)
	}
	lower := strings.ToLower(text)
	if strings.HasPrefix(lower, "unsupported command") {
		return fmt.Errorf("%w: node %s: %s: %s; it is a SableDB, not a Redis: use --engine sabledb", shard.ErrNodeAccess, n.address, name, text)
	}
	if strings.Contains(lower, "unknown command") || strings.Contains(lower, "unknown subcommand") {
		return fmt.Errorf("%w: node %s: %s: %s; the command was renamed or taken away, and is needed", shard.ErrNodeAccess, n.address, name, text)
	}
	return fmt.Errorf("node %s: %s: %w", n.address, name, err)
}
