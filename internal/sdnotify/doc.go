// Package sdnotify tells systemd how a service of Type=notify or notify-reload is
// doing, as sd_notify(3) describes. Without systemd it does nothing. A message that
// systemd does not take is no error: a service must not fail because its supervisor
// is deaf.
package sdnotify
