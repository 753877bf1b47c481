package client

import (
	"context"
	"net/http"
	"time"
)

// removalTimeout bounds a removal whose context has no deadline: the server waits for up to a minute.
const removalTimeout = time.Minute + callTimeout

// ForgetRole deletes a role that nobody holds or waits for. It takes as long as the timeout of the last holder's session,
// if that one did not release it. The history shows by as who asked, here and below.
func (c *Client) ForgetRole(ctx context.Context, role, by string) error {
	return c.remove(ctx, pathOf("roles", role), "by", by)
}

// RemoveQueue deletes a queue that no instance delivers. messages is how many of its messages wait, are in flight or are dead
// letters: all are lost. An [*Error] with the code wrong_state if it is another number.
func (c *Client) RemoveQueue(ctx context.Context, queue string, messages int64, by string) error {
	return c.remove(ctx, pathOf("queues", queue), "messages", messages, "by", by)
}

// RemoveShard deletes a shard whose agents have stopped. The data on its nodes stays.
func (c *Client) RemoveShard(ctx context.Context, shard, by string) error {
	return c.remove(ctx, pathOf("shards", shard), "by", by)
}

// RemoveSource deletes a source that has no open alarm. One that still sends heartbeats is learned again.
func (c *Client) RemoveSource(ctx context.Context, check, source, by string) error {
	return c.remove(ctx, pathOf("sources", check, source), "by", by)
}

// RemoveCheck removes a check: its alarms end, and its sources are forgotten.
func (c *Client) RemoveCheck(ctx context.Context, check, by string) error {
	return c.remove(ctx, pathOf("checks", check), "by", by)
}

// RemoveSink removes a sink of the monitor, which gets no more alarms; note is why, for the history, here and below.
func (c *Client) RemoveSink(ctx context.Context, sink, by, note string) error {
	return c.remove(ctx, pathOf("monitor", "sinks", sink), "by", by, "note", note)
}

// RemovePath forgets an intake path of the monitor that is no longer used.
func (c *Client) RemovePath(ctx context.Context, path, by, note string) error {
	return c.remove(ctx, pathOf("monitor", "paths", path), "by", by, "note", note)
}

func (c *Client) remove(ctx context.Context, path string, query ...any) error {
	ctx, cancel := withTimeout(ctx, removalTimeout)
	defer cancel()
	return c.do(ctx, http.MethodDelete, path, values(query...), nil, nil)
}
