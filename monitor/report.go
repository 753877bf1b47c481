package monitor

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// PingLabel is the label of a source that gives it an address of its own: /ping/ID and /v2/heartbeats/ID/ping, in the
// form of healthchecks.io and of Opsgenie. It goes into no alarm: an ID that is a UUID is its own key.
const PingLabel = "ping"

// MaxReport is how many bytes of a report's body are kept.
const MaxReport = 10_000

// ReportKind is what a report came with.
type ReportKind string

// Kinds of reports.
const (
	ReportSuccess ReportKind = "success"
	ReportStart   ReportKind = "start"
	ReportFail    ReportKind = "fail"
	ReportLog     ReportKind = "log" // with no heartbeat: it says nothing about whether its source is alive
)

// Report is what a source sent along with a heartbeat, such as the last lines of a job's output.
type Report struct {
	At   time.Time // by the store's wall clock
	Kind ReportKind
	Code int    // exit status
	Run  string // ID of the run, "" without one
	Body []byte // at most MaxReport bytes
}

// RunKey is a run's ID as heartbeats carry it: 0 for none.
func RunKey(id string) int64 {
	if id == "" {
		return 0
	}
	sum := sha256.Sum256([]byte(id))
	return int64(binary.BigEndian.Uint64(sum[:])>>1) | 1
}
