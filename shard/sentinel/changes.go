package sentinel

import (
	"slices"
	"strconv"
)

// message to subscribers.
type message struct{ channel, text string }

// switchMaster is the channel that clients act on.
const switchMaster = "+switch-master"

// announced is what subscribers know of a shard.
type announced struct {
	master
	// address of the last primary that took writes, which clients still use.
	address place
}

// changes returns the messages after which subscribers who knew before know after, in the order in
// which Sentinel sends them. before is nil for a shard that is new.
func changes(before *announced, after master) (announced, []message) {
	var out []message
	add := func(channel, text string) { out = append(out, message{channel, text}) }
	now := announced{after, after.place}
	if before == nil {
		add("+monitor", after.label()+" quorum 1")
		if after.isCalledDown() {
			add("+sdown", after.label())
			add("+odown", after.label()+" #quorum 1/1")
		}
		return now, append(out, replicaChanges(nil, after)...)
	}
	old := before.master
	old.place = before.address
	if after.plan != 0 && after.plan != old.plan {
		add("+new-epoch", strconv.FormatInt(after.plan, 10))
		add("+try-failover", old.label())
	}
	if after.down { // clients are led to the new address once it takes writes
		now.address = before.address
		if after.isCalledDown() && !old.isCalledDown() {
			add("+sdown", old.label())
			add("+odown", old.label()+" #quorum 1/1")
		}
		if old.plan != 0 && after.plan == 0 {
			add("-failover-abort-no-good-slave", old.label())
		}
		return now, append(out, replicaChanges(&old, after)...)
	}
	moved := after.place != before.address
	if old.plan != 0 && after.plan == 0 {
		if moved {
			add("+promoted-slave", after.slave(after.node))
		}
		add("+failover-end", old.label())
	}
	switch {
	case moved:
		add(switchMaster, after.name+" "+before.address.words()+" "+after.words())
		return now, append(out, replicaChanges(nil, after)...)
	case old.isCalledDown():
		add("-sdown", after.label())
		add("-odown", after.label())
	}
	if old.rec.Run != "" && after.rec.Run != "" && old.rec.Run != after.rec.Run {
		add("+reboot", after.label())
	}
	return now, append(out, replicaChanges(&old, after)...)
}

// gone is the message about a shard that is no more.
func gone(t announced) message { return message{"-monitor", t.label()} }

// replicaChanges tells of replicas that are new, fall silent, return or follow.
func replicaChanges(before *master, after master) []message {
	var out []message
	add := func(channel string, r node) { out = append(out, message{channel, after.slave(r)}) }
	for _, r := range after.replicas {
		var old node
		known := false
		if before != nil {
			if i := slices.IndexFunc(before.replicas, func(o node) bool { return o.rec.ID == r.rec.ID && o.place == r.place }); i >= 0 {
				old, known = before.replicas[i], true
			}
		}
		if !known {
			add("+slave", r)
		}
		switch {
		case r.down && !old.down:
			add("+sdown", r)
		case !r.down && old.down:
			add("-sdown", r)
		}
		if known && !r.down && old.rec.Run != "" && r.rec.Run != "" && old.rec.Run != r.rec.Run {
			add("+reboot", r)
		}
		if after.linked(r) && (!known || !before.linked(old)) {
			add("+slave-reconf-done", r)
			add("+replica-reconf-done", r) // go-redis listens to this name
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
