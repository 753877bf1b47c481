package wire

import "github.com/understudy-ha/understudy/internal/resp"

// ErrProtocol: the other side does not speak RESP, or more of it than a node needs.
var ErrProtocol = resp.ErrReply

// MaxReply is how many bytes the answers of one exchange may have.
const MaxReply = 4 << 20

var limits = resp.ReplyLimits{Line: 16 << 10, Bulk: MaxReply, Items: 1 << 14, Depth: 4, Total: MaxReply}

type (
	// Reply is one answer.
	Reply = resp.Reply
	// ServerError is an answer that starts with '-'.
	ServerError = resp.ServerError
)
