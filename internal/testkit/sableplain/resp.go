package sableplain

import "github.com/understudy-ha/understudy/internal/resp"

// What clients send and servers answer in tests is smaller.
var (
	requestLimits = resp.Limits{Line: 64 << 10, Args: 64 << 10, Bytes: 64 << 20}
	replyLimits   = resp.ReplyLimits{Line: 64 << 10, Bulk: 64 << 20, Items: 1 << 20, Depth: 8}
)

func failed(text string) resp.Reply { return resp.Reply{Kind: '-', Text: text} }

// writeReply passes an answer on.
func writeReply(w *resp.Writer, r resp.Reply) {
	switch {
	case r.Kind == '+':
		w.Simple(r.Text)
	case r.Kind == '-':
		w.Error(r.Text)
	case r.Kind == ':':
		w.Int(r.Int)
	case r.Kind == '*' && r.Nil:
		w.NullArray()
	case r.Kind == '*':
		w.Array(len(r.Items))
		for _, item := range r.Items {
			writeReply(w, item)
		}
	case r.Nil:
		w.Null()
	default:
		w.Bulk(r.Text)
	}
}
