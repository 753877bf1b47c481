package sableplain

import (
	"fmt"
	"strconv"
	"strings"
)

// form checks the arguments of a command, and returns what is wrong with them.
type form func(args []string) string

const badArgs = "wrong number of arguments for '%s' command"

// exactly and least count the arguments after the name.
func exactly(n int) form {
	return func(args []string) string {
		if len(args)-1 != n {
			return fmt.Sprintf(badArgs, strings.ToLower(args[0]))
		}
		return ""
	}
}

func least(n int) form {
	return func(args []string) string {
		if len(args)-1 < n {
			return fmt.Sprintf(badArgs, strings.ToLower(args[0]))
		}
		return ""
	}
}

// pairs is a key, if there is one, and then names with values.
func pairs(keys int) form {
	return func(args []string) string {
		if n := len(args) - 1 - keys; n < 2 || n%2 != 0 {
			return fmt.Sprintf(badArgs, strings.ToLower(args[0]))
		}
		return ""
	}
}

// set is SET key value [NX] [EX seconds].
func set(args []string) string {
	if len(args) < 3 {
		return fmt.Sprintf(badArgs, "set")
	}
	for rest := args[3:]; len(rest) > 0; {
		switch {
		case strings.EqualFold(rest[0], "NX"):
			rest = rest[1:]
		case strings.EqualFold(rest[0], "EX") && len(rest) > 1 && positive(rest[1]):
			rest = rest[2:]
		default:
			return "syntax error"
		}
	}
	return ""
}

func expire(args []string) string {
	if len(args) != 3 || !positive(args[2]) {
		return "syntax error"
	}
	return ""
}

// blocking is keys and then a timeout in seconds, of which 0 would be for ever.
func blocking(args []string) string {
	if len(args) < 3 {
		return fmt.Sprintf(badArgs, strings.ToLower(args[0]))
	}
	if wait, err := strconv.ParseFloat(args[len(args)-1], 64); err != nil || wait <= 0 {
		return "timeout is not a float or out of range"
	}
	return ""
}

func positive(text string) bool {
	n, err := strconv.ParseInt(text, 10, 64)
	return err == nil && n > 0
}

// commands are those that the specification lists.
func commands() map[string]form {
	return map[string]form{
		"SET": set, "GET": exactly(1), "GETSET": exactly(2), "GETDEL": exactly(1), "MGET": least(1), "MSET": pairs(0),
		"DEL": least(1), "EXISTS": least(1), "EXPIRE": expire, "TTL": exactly(1), "INCR": exactly(1),
		"HSET": pairs(1), "HGET": exactly(2), "HMGET": least(2), "HGETALL": exactly(1), "HDEL": least(2), "HINCRBY": exactly(3),
		"SADD": least(2), "SREM": least(2), "SMEMBERS": exactly(1), "SISMEMBER": exactly(2),
		"LPUSH": least(2), "RPUSH": least(2), "LLEN": exactly(1), "LRANGE": exactly(3), "LREM": exactly(3), "LTRIM": exactly(3),
		"BLPOP": blocking, "BRPOP": blocking, "BLMOVE": exactly(5), "ZADD": pairs(1), "SCAN": least(1), "KEYS": exactly(1),
		"MULTI": exactly(0), "EXEC": exactly(0), "DISCARD": exactly(0), "WATCH": least(1), "UNWATCH": exactly(0),
		"PING": exactly(0), "INFO": least(0), "DBSIZE": exactly(0),
	}
}

// outside a transaction only.
func outside(name string) bool {
	switch name {
	case "WATCH", "UNWATCH", "MULTI", "INFO", "PING", "DBSIZE", "BLPOP", "BRPOP", "BLMOVE", "KEYS", "SCAN":
		return true
	}
	return false
}
