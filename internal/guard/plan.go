package guard

import "time"

// A watcher's decisions, without its system calls.

// plan is the times that a watcher keeps to.
type plan struct {
	// terminate and kill are how long before the deadline to start each.
	terminate, kill time.Duration
	// grace is the time between SIGTERM and SIGKILL.
	grace time.Duration
	// rest is the grace of descendants after the program itself has ended.
	rest time.Duration
}

const (
	leastMargin, mostMargin = 40 * time.Millisecond, 500 * time.Millisecond
	// What the kernel needs to end a process, on a busy host.
	perProcess = 500 * time.Microsecond
	// While killing, the tree is searched this often, because a fork may have
	// slipped through; and less often after killEagerly, when something is left that
	// cannot be killed.
	killPause, laterPause = 5 * time.Millisecond, 100 * time.Millisecond
	killEagerly           = 2 * time.Second
)

// innerPlan is for the watcher next to the program.
func innerPlan(grace time.Duration) plan {
	margin := min(max(leastMargin, grace/5), mostMargin)
	return plan{terminate: max(grace, margin), kill: margin, grace: grace, rest: grace}
}

// outerPlan is for the outer watcher: half a margin later than the inner one, which
// so has time to do everything itself.
func outerPlan(grace time.Duration) plan {
	margin := innerPlan(grace).kill
	return plan{terminate: margin / 2, kill: margin / 2, grace: grace + margin, rest: 0}
}

type event int

const (
	tick          event = iota // time has passed
	stopRequested              // the guard wants the program to stop
	guardGone                  // the guard cannot be heard any more
	programEnded
)

type action int

const (
	nothing   action = iota
	terminate        // SIGTERM to all
	kill             // SIGKILL to all
)

type phase int

const (
	running phase = iota
	stopping
	killing
)

// machine decides what a watcher does. It ends only when its processes have ended,
// which its owner notices.
type machine struct {
	plan
	deadline time.Duration
	phase    phase
	reason   Reason        // why it is no longer running
	graceEnd time.Duration // when asked
	killed   time.Duration // when killing began
	next     time.Duration // when to kill again
}

// extend moves the deadline. A program that is stopping stays stopping.
func (m *machine) extend(until time.Duration) { m.deadline = until }

// countProcesses moves the kill forward for many processes: they take longer to die.
func (m *machine) countProcesses(n int) {
	m.kill = min(m.plan.terminate, m.kill+time.Duration(n)*perProcess)
}

// step returns what to do now that ev has happened.
func (m *machine) step(now time.Duration, ev event) action {
	did := nothing
	stop := func(why Reason, grace time.Duration) {
		if m.phase == running {
			m.phase, m.reason, m.graceEnd, did = stopping, why, now+grace, terminate
		}
		m.graceEnd = min(m.graceEnd, now+grace)
	}
	switch ev {
	case stopRequested:
		stop(Stopped, m.grace)
	case guardGone:
		stop(GuardGone, m.grace)
	case programEnded:
		stop(Exited, m.rest)
	case tick:
	}
	if m.phase == running && now >= m.deadline-m.terminate {
		stop(Deadline, m.grace)
	}
	if m.phase == stopping && now >= m.wake() {
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

// wake is when step must be called again if nothing happens.
func (m *machine) wake() time.Duration {
	switch m.phase {
	case running:
		return m.deadline - m.terminate
	case stopping:
		return min(m.graceEnd, m.deadline-m.kill)
	default:
		return m.next
	}
}
