package sdnotify

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// Ready tells that start-up, or reading the configuration again, is finished.
func Ready() { send("READY=1") }

// Stopping tells that the service is shutting down.
func Stopping() { send("STOPPING=1") }

// Reloading tells that the configuration is being read again; [Ready] ends it, also
// when the new one was refused. Type=notify-reload needs the time, by the clock that
// systemd compares it with.
func Reloading() {
	state := "RELOADING=1"
	if now, ok := monotonic(); ok {
		state += fmt.Sprintf("\nMONOTONIC_USEC=%d", now.Microseconds())
	}
	send(state)
}

// Watchdog tells systemd until ctx ends that the service goes round, three times in each
// WatchdogSec, as long as alive says so. It returns at once when systemd waits for nothing.
// alive is called by one goroutine at a time; while it does not return nothing is told.
func Watchdog(ctx context.Context, alive func() bool) {
	every, ok := period()
	if !ok {
		return
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for ctx.Err() == nil {
		if alive() {
			send("WATCHDOG=1")
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// perPeriod is how often the service tells in each WatchdogSec, so that one message may be late.
const perPeriod = 3

// period is how often to tell. What is meant for another process, such as the parent that
// passed its environment on, is not for this one.
func period() (time.Duration, bool) {
	if os.Getenv("NOTIFY_SOCKET") == "" {
		return 0, false
	}
	if pid := os.Getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0, false
	}
	us, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if err != nil || us < perPeriod || us > int64(24*time.Hour/time.Microsecond) {
		return 0, false
	}
	return time.Duration(us) * time.Microsecond / perPeriod, true
}

func send(state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	if strings.HasPrefix(path, "@") {
		path = "\x00" + path[1:]
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write([]byte(state))
}
