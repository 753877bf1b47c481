package redis

import "github.com/redis/go-redis/v9/logging"

// SilenceDriver stops the driver from printing failed connections to standard
// error; they are returned as errors all the same. It is for programs: the
// setting is the process's, not a store's.
func SilenceDriver() { logging.Disable() }
