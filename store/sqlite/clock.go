package sqlite

import (
	"database/sql/driver"
	"os"
	"strings"
	"time"

	"modernc.org/sqlite"

	"github.com/understudy-ha/understudy/lease"
)

// wallBoot stands for the boot id where there is none. Deadlines are then kept
// on the wall clock, which is the same for every process of the host, as the
// process's own monotonic clock is not.
const wallBoot = "wall"

// clocks are what the store judges by.
type clocks struct {
	boot string               // which kernel run now counts in
	now  func() time.Duration // since an arbitrary point of that run
	wall func() time.Time     // for people, and for terms
}

func newClocks(cfg Config) clocks {
	c := clocks{boot: cfg.BootID, wall: cfg.Wall}
	if c.boot == "" {
		c.boot = thisBoot()
	}
	if c.wall == nil {
		c.wall = time.Now
	}
	switch {
	case cfg.Clock != nil:
		c.now = cfg.Clock.Now
	case c.boot == wallBoot:
		c.now = func() time.Duration { return time.Duration(c.wall().UnixNano()) }
	default:
		c.now = lease.BootClock().Now
	}
	return c
}

// thisBoot names the run of the kernel whose boot-time clock this process
// reads. A time namespace shifts that clock, so that it counts as a run of its
// own.
func thisBoot() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || len(strings.TrimSpace(string(id))) == 0 {
		return wallBoot
	}
	boot := strings.TrimSpace(string(id))
	const initial = "time:[4026531834]" // the kernel fixes the number of the first one
	if ns, err := os.Readlink("/proc/self/ns/time"); err == nil && ns != initial {
		boot += " " + ns
	}
	return boot
}

func (c clocks) bootMicros() int64 { return c.now().Microseconds() }
func (c clocks) wallMicros() int64 { return c.wall().UnixMicro() }

// register makes the clocks readable in SQL, so that a statement that is its own
// transaction reads them after it got the write lock, however long it waited.
func (c clocks) register(d *sqlite.Driver) error {
	for name, read := range map[string]func() int64{
		"understudy_boot_us": c.bootMicros,
		"understudy_wall_us": c.wallMicros,
	} {
		err := d.RegisterScalarFunction(name, 0, func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
			return read(), nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
