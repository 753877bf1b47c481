// Package sdnotify tells systemd how a service of Type=notify is doing, as
// sd_notify(3) describes. Without systemd it does nothing.
package sdnotify

import (
	"net"
	"os"
	"strings"
)

// Ready tells that start-up is finished.
func Ready() { send("READY=1") }

// Stopping tells that the service is shutting down.
func Stopping() { send("STOPPING=1") }

// send is best effort: a service must not fail because its supervisor is deaf.
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
	_, _ = conn.Write([]byte(state))
}
