//go:build !unix

package startlistener

// connBound is how many connections a port may have.
func connBound(int) int { return maxConns }
