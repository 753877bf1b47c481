package guard

import "time"

// A watcher's decisions, without its system calls.

// plan is the times that a watcher keeps to.
type plan struct {
	// ask and kill are how long before the deadline to begin each.
	ask, kill time.Duration
	// grace is the time between being told to stop and killing.
	grace time.Duration
	// rest is the time that others have after the program itself has ended.
	rest time.Duration
}

const (
	leastMargin, mostMargin = 40 * time.Millisecond, 500 * time.Millisecond
	// What it takes the kernel to take a process apart, on a busy host.
	perProcess = 500 * time.Microsecond
	// While a kill goes on, processes are looked for this often, as a fork may
	// have slipped through; and less often once it is clear that something is left
	// which cannot be killed.
	killPause, laterPause = 5 * time.Millisecond, 100 * time.Millisecond
	killEagerly           = 2 * time.Second
)

// innerPlan is for the watcher next to the program.
func innerPlan(grace time.Duration) plan {
	margin := min(max(leastMargin, grace/5), mostMargin)
	return plan{ask: max(grace, margin), kill: margin, grace: grace, rest: grace}
}

// outerPlan is for the watcher that comes after: it leaves the inner one time to
// do everything itself.
func outerPlan(grace time.Duration) plan {
	margin := innerPlan(grace).kill
	return plan{ask: margin / 2, kill: margin / 2, grace: grace + margin, rest: 0}
}

type event int

const (
	tick       event = iota // time has passed
	toldToStop              // the guard wants the program to stop
	guardGone               // the guard cannot be heard any more
	programEnded
)

type action int

const (
	nothing action = iota
	ask            // SIGTERM to all
	kill           // SIGKILL to all
)

type phase int

const (
	running phase = iota
	asked
	killing
)

// machine decides what a watcher does. It ends only with the processes it is for,
// which its owner finds out.
type machine struct {
	plan
	deadline time.Duration
	phase    phase
	reason   Reason        // why it is no longer running
	graceEnd time.Duration // when asked
	killed   time.Duration // when killing began
	next     time.Duration // when to kill again
}

// extend moves the deadline. What was asked to stop stays asked.
func (m *machine) extend(until time.Duration) { m.deadline = until }

// crowd says how many processes there are: many take longer to die.
func (m *machine) crowd(n int) {
	m.kill = min(m.plan.ask, m.kill+time.Duration(n)*perProcess)
}

// step says what to do now that ev has happened.
func (m *machine) step(now time.Duration, ev event) action {
	did := nothing
	stop := func(why Reason, grace time.Duration) {
		if m.phase == running {
			m.phase, m.reason, m.graceEnd, did = asked, why, now+grace, ask
		}
		m.graceEnd = min(m.graceEnd, now+grace)
	}
	switch ev {
	case toldToStop:
		stop(Stopped, m.grace)
	case guardGone:
		stop(GuardGone, m.grace)
	case programEnded:
		stop(Exited, m.rest)
	case tick:
	}
	if m.phase == running && now >= m.deadline-m.ask {
		stop(Deadline, m.grace)
	}
	if m.phase == asked && now >= m.wake() {
		m.phase, m.killed, m.next = killing, now, now
	}
	if m.phase == killing && now >= m.next {
		did, m.next = kill, now+killPause
		if now-m.killed > killEagerly {
			m.next = now + laterPause
		}
	}
	return did
}

// wake is when step has to be called again if nothing happens.
func (m *machine) wake() time.Duration {
	switch m.phase {
	case running:
		return m.deadline - m.ask
	case asked:
		return min(m.graceEnd, m.deadline-m.kill)
	default:
		return m.next
	}
}
