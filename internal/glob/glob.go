// Package glob matches texts against patterns, in time that is bounded by the product of their lengths.
package glob

// Match reports whether a text fits a pattern in which * stands for any bytes, and everything else for itself.
func Match(pattern, text string) bool { return match(pattern, text, matchLiteral) }

// MatchRedis reports whether a text fits a pattern as Redis writes them: *, ?, [a-c], [^a], and \ before what is meant
// as it is.
func MatchRedis(pattern, text string) bool { return match(pattern, text, matchRedis) }

// match leaves to one what a pattern that does not begin with * says about one byte, and how long that is in the pattern.
func match(pattern, text string, one func(pattern string, c byte) (ok bool, size int)) bool {
	p, n := 0, 0
	star, resume := -1, 0 // the last *, and where to continue after it
	for n < len(text) {
		if p < len(pattern) && pattern[p] == '*' {
			star, resume = p, n
			p++
			continue
		}
		if p < len(pattern) {
			if ok, size := one(pattern[p:], text[n]); ok {
				p += size
				n++
				continue
			}
		}
		if star < 0 {
			return false
		}
		// Only the last * can be worth another try: whatever an earlier one could take, this one can take too.
		resume++
		p, n = star+1, resume
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

func matchLiteral(pattern string, c byte) (bool, int) { return pattern[0] == c, 1 }

func matchRedis(pattern string, c byte) (bool, int) {
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
