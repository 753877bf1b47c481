package redis

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// The form in which records and commands are kept: names and numbers that others
// read in fields of their own, and the rest as JSON.

// ownFields are the fields of a record's hash that are not in its detail.
var ownFields = []string{
	"shard_name", "node_id", "node_address", "role", "last_updated", "last_txn_id", "primary_node_id", "instance", "timeout_ns",
}

// recordFields are names and values of a record's hash, but for last_updated, which is
// the store's.
func recordFields(r shard.Record) ([]any, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("node %.8s: %w", r.ID, err)
	}
	var detail map[string]json.RawMessage
	if err := json.Unmarshal(text, &detail); err != nil {
		return nil, fmt.Errorf("node %.8s: %w", r.ID, err)
	}
	for _, name := range ownFields {
		delete(detail, name)
	}
	if text, err = json.Marshal(detail); err != nil {
		return nil, fmt.Errorf("node %.8s: %w", r.ID, err)
	}
	return []any{
		"node_id", r.ID, "node_address", r.Address, "role", string(r.Role), "last_txn_id", r.Txn, "primary_node_id", r.PrimaryID,
		"shard_name", r.Shard, "instance", r.Instance, "timeout_ns", int64(r.Timeout), "detail", string(text),
	}, nil
}

// recordOf reads a record's hash. at is the store's clock in µs.
func recordOf(fields map[string]string, at int64) (shard.Record, error) {
	var r shard.Record
	if err := json.Unmarshal([]byte(fields["detail"]), &r); err != nil {
		return r, unreadable("the record of node", fields["node_id"], err)
	}
	r.ID, r.Address, r.Shard = fields["node_id"], fields["node_address"], fields["shard_name"]
	r.Role, r.PrimaryID, r.Instance = shard.Role(fields["role"]), fields["primary_node_id"], fields["instance"]
	var timeout int64
	for name, to := range map[string]*int64{"last_updated": &r.Updated, "last_txn_id": &r.Txn, "timeout_ns": &timeout} {
		var err error
		if *to, err = strconv.ParseInt(fields[name], 10, 64); err != nil {
			return r, unreadable("the record of node", r.ID, err)
		}
	}
	r.Timeout = time.Duration(timeout)
	r.Age = shard.AgeAt(time.UnixMicro(at), time.UnixMicro(r.Updated), time.Duration(timeout))
	return r, nil
}

// rowOfShard reads a row. The revision is the hash's own.
func rowOfShard(name string, rev int64, doc string) (shard.Row, error) {
	var r shard.Row
	if rev != 0 {
		if err := json.Unmarshal([]byte(doc), &r); err != nil {
			return r, unreadable("the row of shard", name, err)
		}
	}
	r.Name, r.Rev = name, rev
	return r, nil
}

// queuedCommand is an entry of a queue.
type queuedCommand struct {
	Expires int64 `json:"expires_us"` // by the store's clock
	shard.Command
}

func commandText(c shard.Command) (string, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("command %q: %w", c.ID, err)
	}
	return string(text), nil
}

// members are the ids of a row's, in order.
func members(r shard.Row) []string {
	var ids []string
	for _, m := range r.Members {
		ids = append(ids, m.ID)
	}
	slices.Sort(ids)
	return ids
}

func unreadable(what, name string, err error) error {
	return fmt.Errorf("%w: %s %q cannot be read; something else writes under this prefix: %w", lease.ErrUnavailable, what, name, err)
}

// Keys of a shard's. A node's id is 40 hexadecimal digits, so that its keys are like
// none of the store's others.
func (s *Store) nodeKey(id string) string      { return s.root + id }
func (s *Store) lockKey(primary string) string { return s.root + primary + "_FAILOVER" }
func (s *Store) nodeQueueKey(id string) string { return s.root + id + "_queue" }
func (s *Store) shardKey(name string) string   { return s.root + "shard:" + name }

// lockSeconds is how long a lock lives, as EX takes it.
const lockSeconds = int(shard.LockTime / time.Second)
