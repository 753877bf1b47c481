// Package clientgo is the lock of client-go's leader election, kept in a store of Understudy instead of a Kubernetes API server: leaders
// have terms, and the context of a leader's work ends before another can lead.
//
// Change two lines, the one with the lock and the one that starts the work; leaderelection.RunOrDie stays as it is:
//
//	lock, err := clientgo.NewLock(clientgo.Config{Store: store, Role: "controller", Identity: hostname})
//	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
//		Lock: lock, // was &resourcelock.LeaseLock{…}
//		Callbacks: leaderelection.LeaderCallbacks{
//			OnStartedLeading: func(ctx context.Context) { work(lock.Context(ctx)) }, // was work(ctx)
//
// With controller-runtime, whose work runs under the context of its manager:
//
//	mgr, err := manager.New(config, manager.Options{LeaderElection: true, LeaderElectionResourceLockInterface: lock, …
//	err = mgr.Start(lock.Context(ctx)) // returns when the term is lost; end the process then
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
// The context that Lock.Context returns ends before another can lead, by this host's boot clock. Work that was paused past that finds
// out when it next calls the context's Err, as under elect.Run.
//
// client-go goes on for RetryPeriod + RenewDeadline after an Update that succeeded, so one succeeds only while the session can be
// trusted for longer; timings that leave no room for that are refused. An Update whose answer came too late has failed. A term that is
// lost is not acquired again under the same OnStartedLeading.
//
// Lock.Term is greater than all before; send it along with every effect. understudy role list shows the leader.
//
// # What is not promised
//
// That client-go's own context ends in time, the one that OnStartedLeading gets: its RenewDeadline begins when it next tries to renew.
// After a pause of the process, or when the host was suspended, that context lives on for up to RetryPeriod + RenewDeadline, beside
// the next leader.
//
// That OnStartedLeading has returned when its context has ended: with ReleaseOnCancel, client-go releases at once when the caller ends
// its context, whatever still runs. After a failed renewal the lock does not release but lapses.
//
// That nothing of a paused process lands later: a request in flight may. That is what terms are for.
//
// client-go's coordinated election is not supported, nor is understudy role resign obeyed.
package clientgo
