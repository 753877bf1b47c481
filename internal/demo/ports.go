package demo

import (
	"fmt"
	"net"
	"os"
	"strconv"
)

// The ports of the processes are below those that a kernel gives to whoever asks for any: they
// have to be free again for one that comes back.
const (
	firstPort, endPort = 24_000, 32_000
	// portsEach is how many a demonstration has for itself among those that were started about
	// when it was: their process ids are near.
	portsEach = 32
)

// ports gives each of this host's ports once.
type ports struct{ given int }

// free are n addresses of this host where nobody listens. They are not held: whoever is to
// listen there has to be able to.
func (p *ports) free(n int) (addresses []string, err error) {
	const all = endPort - firstPort
	for ; len(addresses) < n; p.given++ {
		if p.given >= all {
			return nil, fmt.Errorf("all ports of 127.0.0.1 from %d to %d are in use", firstPort, endPort-1)
		}
		port := firstPort + (os.Getpid()*portsEach+p.given)%all
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		addresses = append(addresses, l.Addr().String())
		_ = l.Close()
	}
	return addresses, nil
}
