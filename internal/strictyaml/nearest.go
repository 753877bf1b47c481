package strictyaml

import (
	"fmt"
	"slices"
	"strings"
)

// DidYouMean names what is nearest to a word, if it is near.
func DidYouMean(word string, known []string) string {
	if len(word) > 100 { // nobody has meant a key by that
		return ""
	}
	nearest, least := "", 2+len(word)/4
	slices.Sort(known) // the same answer each time
	for _, k := range known {
		if d := distance(strings.ToLower(word), strings.ToLower(k)); d < least {
			nearest, least = k, d
		}
	}
	if nearest == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", nearest)
}

// distance is how many letters must be changed, added, left out or swapped with the
// next to make one word of another.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	d := make([][]int, len(x)+1) // [i][j]: of the first i letters and the first j
	for i := range d {
		d[i] = make([]int, len(y)+1)
		for j := range d[i] {
			switch {
			case i == 0 || j == 0:
				d[i][j] = i + j
				continue
			case x[i-1] == y[j-1]:
				d[i][j] = d[i-1][j-1]
			default:
				d[i][j] = d[i-1][j-1] + 1
			}
			d[i][j] = min(d[i][j], d[i-1][j]+1, d[i][j-1]+1)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(x)][len(y)]
}
