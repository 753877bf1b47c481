//go:build !unix

package startlistener

// connBound is how many connections the port may have.
func connBound() int { return maxConns }
