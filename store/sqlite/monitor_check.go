package sqlite

import "github.com/understudy-ha/understudy/monitor"

const (
	checkColumns = "SELECT e.id, e.name, e.config, e.paused, e.rev, e.base_us, e.removed, e.every_us FROM understudy_monitor_event e "

	checkNamed = checkColumns + "WHERE e.name = ?1"
	checkByID  = checkColumns + "WHERE e.id = ?1"
	allChecks  = checkColumns + "ORDER BY e.name"
)

// checkRow is a check as the store has it. Its own Paused is what holds now, configured.Paused what was configured:
// an operator may have changed it since.
type checkRow struct {
	monitor.StoredCheck
	configured monitor.Check
	base       monitor.StoreTime
	every      int64 // µs that a bit of a source's recent intervals stands for
}

func scanCheck(scan scanner, more ...any) (*checkRow, error) {
	e := &checkRow{}
	var config []byte
	var name string
	var paused bool
	dest := []any{&e.ID, &name, &config, &paused, &e.Rev, &e.base, &e.Removed, &e.every}
	if err := scan(append(dest, more...)...); err != nil {
		return nil, err
	}
	if err := e.configured.UnmarshalStored(config); err != nil {
		return nil, err
	}
	e.Check = e.configured
	e.Paused = paused
	return e, nil
}

// readCheck reads one check; nil if there is none.
func readCheck(t *monitorTxn, text string, arg any) (*checkRow, error) {
	e, err := scanCheck(func(dest ...any) error { return t.one(text, []any{arg}, dest...) })
	return e, notThere(err)
}

// checkCache reads each check once.
type checkCache struct {
	from   *monitorTxn
	byName map[string]*checkRow
	byID   map[int64]*checkRow
}

func checksOf(t *monitorTxn) *checkCache {
	return &checkCache{from: t, byName: map[string]*checkRow{}, byID: map[int64]*checkRow{}}
}

// named returns a configured check, nil for one that is not configured or was removed.
func (c *checkCache) named(name string) (*checkRow, error) {
	if e, known := c.byName[name]; known {
		return e, nil
	}
	e, err := readCheck(c.from, checkNamed, name)
	if e != nil && e.Removed {
		e = nil
	}
	if err == nil {
		c.byName[name] = e
	}
	return e, err
}

func (c *checkCache) byNumber(id int64) (*checkRow, error) {
	if e := c.byID[id]; e != nil {
		return e, nil
	}
	e, err := readCheck(c.from, checkByID, id)
	if e != nil {
		c.byID[id] = e
	}
	return e, err
}
