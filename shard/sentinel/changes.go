package sentinel

import (
	"slices"
	"strconv"
)

// message to subscribers.
type message struct{ channel, text string }

// switchMaster is the channel that clients act on.
const switchMaster = "+switch-master"

// told is what subscribers know of a shard.
type told struct {
	master
	// address of the last primary that took writes, which clients still use.
	address place
}

// changes returns what has to be told so that who knew before knows after, in the order in
// which Sentinel does. before is nil for a shard that is new.
func changes(before *told, after master) (told, []message) {
	var out []message
	say := func(channel, text string) { out = append(out, message{channel, text}) }
	now := told{after, after.place}
	if before == nil {
		say("+monitor", after.label()+" quorum 1")
		if after.isCalledDown() {
			say("+sdown", after.label())
			say("+odown", after.label()+" #quorum 1/1")
		}
		return now, append(out, replicaChanges(nil, after)...)
	}
	old := before.master
	old.place = before.address
	if after.plan != 0 && after.plan != old.plan {
		say("+new-epoch", strconv.FormatInt(after.plan, 10))
		say("+try-failover", old.label())
	}
	if after.down { // clients are led to the new address once it takes writes
		now.address = before.address
		if after.isCalledDown() && !old.isCalledDown() {
			say("+sdown", old.label())
			say("+odown", old.label()+" #quorum 1/1")
		}
		if old.plan != 0 && after.plan == 0 {
			say("-failover-abort-no-good-slave", old.label())
		}
		return now, append(out, replicaChanges(&old, after)...)
	}
	moved := after.place != before.address
	if old.plan != 0 && after.plan == 0 {
		if moved {
			say("+promoted-slave", after.slave(after.node))
		}
		say("+failover-end", old.label())
	}
	switch {
	case moved:
		say(switchMaster, after.name+" "+before.address.words()+" "+after.words())
		return now, append(out, replicaChanges(nil, after)...)
	case old.isCalledDown():
		say("-sdown", after.label())
		say("-odown", after.label())
	}
	if old.rec.Run != "" && after.rec.Run != "" && old.rec.Run != after.rec.Run {
		say("+reboot", after.label())
	}
	return now, append(out, replicaChanges(&old, after)...)
}

// gone is what is told of a shard that is no more.
func gone(t told) message { return message{"-monitor", t.label()} }

// replicaChanges tells of replicas that are new, fall silent, return or follow.
func replicaChanges(before *master, after master) []message {
	var out []message
	say := func(channel string, r node) { out = append(out, message{channel, after.slave(r)}) }
	for _, r := range after.replicas {
		var old node
		known := false
		if before != nil {
			if i := slices.IndexFunc(before.replicas, func(o node) bool { return o.rec.ID == r.rec.ID && o.place == r.place }); i >= 0 {
				old, known = before.replicas[i], true
			}
		}
		if !known {
			say("+slave", r)
		}
		switch {
		case r.down && !old.down:
			say("+sdown", r)
		case !r.down && old.down:
			say("-sdown", r)
		}
		if known && !r.down && old.rec.Run != "" && r.rec.Run != "" && old.rec.Run != r.rec.Run {
			say("+reboot", r)
		}
		if after.linked(r) && (!known || !before.linked(old)) {
			say("+slave-reconf-done", r)
			say("+replica-reconf-done", r) // go-redis listens to this name
		}
	}
	return out
}

// label of the primary in messages.
func (m master) label() string { return "master " + m.name + " " + m.words() }

// slave is the label of a replica.
func (m master) slave(r node) string {
	return "slave " + r.String() + " " + r.words() + " @ " + m.name + " " + m.words()
}
