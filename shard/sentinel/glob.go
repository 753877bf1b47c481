package sentinel

// match tells whether a name fits a pattern as Redis writes them: *, ?, [a-c], [^a], and
// \ before what is meant as it is. It takes time in proportion to both lengths.
func match(pattern, name string) bool {
	p, n := 0, 0
	star, resume := -1, 0 // the last *, and where to go on after it
	for n < len(name) {
		if p < len(pattern) && pattern[p] == '*' {
			star, resume = p, n
			p++
			continue
		}
		if p < len(pattern) {
			if ok, size := matchOne(pattern[p:], name[n]); ok {
				p += size
				n++
				continue
			}
		}
		if star < 0 {
			return false
		}
		resume++
		p, n = star+1, resume
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// matchOne compares a byte with what the pattern begins with, and tells how long that is.
func matchOne(pattern string, c byte) (bool, int) {
	switch {
	case pattern[0] == '?':
		return true, 1
	case pattern[0] == '\\' && len(pattern) > 1:
		return pattern[1] == c, 2
	case pattern[0] != '[':
		return pattern[0] == c, 1
	}
	i, not, found := 1, false, false
	if i < len(pattern) && pattern[i] == '^' {
		not = true
		i++
	}
	for ; i < len(pattern) && pattern[i] != ']'; i++ {
		switch {
		case pattern[i] == '\\' && i+1 < len(pattern):
			i++
			found = found || pattern[i] == c
		case i+2 < len(pattern) && pattern[i+1] == '-':
			low, high := min(pattern[i], pattern[i+2]), max(pattern[i], pattern[i+2])
			found = found || low <= c && c <= high
			i += 2
		default:
			found = found || pattern[i] == c
		}
	}
	return found != not, min(i+1, len(pattern))
}
