// Package schedule is when something comes: the five fields of crontab(5) in a time zone, a period, or a date. It has
// no clock: it says what comes after a time that it is given.
//
// # Daylight saving
//
// As users of cron expect, nothing is lost and nothing comes twice when clocks change:
//
//	the schedule names           the clock skips its time        the clock shows its time twice
//	certain hours ("30 2 * * *") once, when the gap ends         once, the first time
//	every hour ("*/10 * * * *")  as the clock goes               each time
//	a period ("every 90m")       as time passes                  as time passes
//	a date                       when the gap ends               the first time
//
// The zones are those of the host's database, or of package time/tzdata where a program links that: all programs that
// share a schedule should know the same.
package schedule
