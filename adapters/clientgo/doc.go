// Package clientgo is the lock of client-go's leader election, kept in a store of Understudy instead of a Kubernetes API server: leaders
// have terms, and there are never two.
//
// Change one line, the one with the lock; leaderelection.RunOrDie, controller-runtime and their callbacks stay as they are:
//
//	lock, err := clientgo.NewLock(clientgo.Config{Store: store, Role: "controller", Identity: hostname})
//	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
//		Lock: lock, // was &resourcelock.LeaseLock{…}
//
// # How
//
// The lock is the lease of a role. client-go's own loop renews its session: there is no other heartbeat, so that it lapses when
// client-go stops. The state beside the lease keeps the LeaderElectionRecord. Whether a holder has lapsed is decided by the
// store's clock and by ours as for any role (lease.TakeoverPolicy), not by client-go: a lock that can be acquired is shown without a
// holder.
//
//	Get     reads the lease and its state
//	Create  starts a session and acquires the lease; so does Update on a standby
//	Update  renews the session and writes the record under the term; with an empty holder it releases
//
// # What is promised
//
// The context of OnStartedLeading ends before another can lead. client-go goes on for RetryPeriod + RenewDeadline after an Update that
// succeeded, so one succeeds only while the session can be trusted for longer; timings that leave no room for that are refused. An
// Update whose answer came too late has failed. A term that is lost is not acquired again under the same OnStartedLeading.
//
// Lock.Term is greater than all before; send it along with every effect. understudy role list shows the leader.
//
// # What is not promised
//
// That OnStartedLeading has returned when its context has ended: with ReleaseOnCancel, client-go releases at once when the caller ends
// its context, whatever still runs. After a failed renewal the lock does not release but lapses. A paused process notices when it runs again: that is what terms are for.
// client-go's coordinated election is not supported, nor is understudy role resign obeyed.
package clientgo
