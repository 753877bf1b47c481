package protocol_test

import (
	"fmt"

	"github.com/understudy-ha/understudy/cache/protocol"
)

// Lists of members change by one member at a time.
func ExampleMembers_WorksWith() {
	a := protocol.Member{URL: "tcp://10.0.0.1:6000", API: "tcp://10.0.0.1:6001"}
	b := protocol.Member{URL: "tcp://10.0.0.2:6000", API: "tcp://10.0.0.2:6001"}
	c := protocol.Member{URL: "tcp://10.0.0.3:6000", API: "tcp://10.0.0.3:6001"}
	old := protocol.NewMembers([]protocol.Member{a, b})
	one := protocol.NewMembers([]protocol.Member{a, b, c})
	two := protocol.NewMembers([]protocol.Member{a, c})
	fmt.Println(old.Difference(one), old.WorksWith(one))
	fmt.Println(old.Difference(two), old.WorksWith(two))
	// Output:
	// [+tcp://10.0.0.3:6000] true
	// [+tcp://10.0.0.3:6000 -tcp://10.0.0.2:6000] false
}
