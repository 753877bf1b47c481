package monitor

import (
	"errors"
	"time"
)

// Schedule is when something is expected, as in crontab(5).
type Schedule struct{}

// ParseSchedule reads one.
func ParseSchedule(text string) (Schedule, error) { return Schedule{}, errors.New("todo") }

// Next is the first time after t; zero when there is none.
func (s Schedule) Next(t time.Time) time.Time { return time.Time{} }
