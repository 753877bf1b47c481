package cache

import (
	"sync/atomic"
	"time"
)

// counters are what several goroutines count.
type counters struct {
	hits, stales, misses, referred, refused atomic.Int64
	waiting                                 atomic.Int64
	fetches, fetchFailures, fetchAborted    atomic.Int64
	fetching, fetchTime                     atomic.Int64
	sent, received, malformed               atomic.Int64
	requests, badRequests, clients, slow    atomic.Int64
	saves, saveFailures                     atomic.Int64
}

// Stats are the counters since the peer was made, and the levels of now.
func (p *Peer) Stats() Stats {
	c, m := &p.counters, p.loop.readCounters()
	keys, bytes, evicted := p.table.usage()
	var dropped, refused, failed int64
	select {
	case <-p.ready:
		peers, clients := p.links.pub, p.clients.router
		dropped = peers.Dropped()
		refused, failed = peers.Refused()+clients.Refused(), peers.Failed()+clients.Failed()
	default:
	}
	return Stats{
		Hits: c.hits.Load(), Stales: c.stales.Load(), Misses: c.misses.Load(),
		Referred: c.referred.Load(), Refused: c.refused.Load(), Waiting: c.waiting.Load(),
		Keys: keys, Bytes: bytes, Evicted: evicted,
		Elections: m.Elections, Won: m.Won, Yielded: m.Yielded,
		Fetches: c.fetches.Load(), FetchFailures: c.fetchFailures.Load(), FetchAborted: c.fetchAborted.Load(),
		Fetching: c.fetching.Load(), ElectionTime: m.ElectionTime, FetchTime: time.Duration(c.fetchTime.Load()),
		Sent: c.sent.Load(), Received: c.received.Load(), Dropped: dropped, Malformed: c.malformed.Load() + m.Ignored,
		Requests: c.requests.Load(), BadRequests: c.badRequests.Load(), Clients: c.clients.Load(), Slow: c.slow.Load(), ConnsRefused: refused, ConnsFailed: failed,
		Partitions: m.Partitions, Saves: c.saves.Load(), SaveFailures: c.saveFailures.Load(), Removals: m.Removals,
	}
}

// Stats are counters since the start, and levels.
type Stats struct {
	Hits, Stales, Misses, Referred, Refused int64
	Waiting                                 int64 // level
	Keys                                    int64 // level
	Bytes                                   int64 // level
	Evicted                                 int64
	Elections, Won, Yielded                 int64
	Fetches, FetchFailures, FetchAborted    int64
	Fetching                                int64         // level
	ElectionTime, FetchTime                 time.Duration // sums
	Sent, Received, Malformed               int64         // messages between peers; of clients: Requests
	Dropped                                 int64         // messages to peers that found their queue full
	Requests, BadRequests                   int64
	Clients                                 int64 // level
	Slow                                    int64 // clients disconnected because they did not read
	ConnsRefused                            int64 // of clients and peers, because there were too many
	ConnsFailed                             int64 // of clients and peers: in the handshake, or because they broke the protocol
	Partitions                              int64
	Saves, SaveFailures                     int64
	Removals                                int64
}
