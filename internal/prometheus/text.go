package prometheus

import (
	"math"
	"strconv"
	"strings"
)

var (
	helpEscaper  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	labelEscaper = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// encode writes metrics, which are sorted, in the text format.
func encode(all []metric) (out []byte) {
	last := ""
	for _, m := range all {
		if m.name != last {
			last = m.name
			out = append(out, "# HELP "+last+" "+helpEscaper.Replace(m.help)+"\n# TYPE "+last+" "+m.kind+"\n"...)
		}
		for _, p := range m.points {
			out = append(out, last+p.suffix...)
			out = appendLabels(out, m.labels, p.extra)
			out = append(out, ' ')
			out = append(appendNumber(out, p.value), '\n')
		}
	}
	return out
}

func appendLabels(out []byte, labels []label, extra label) []byte {
	separator := byte('{')
	add := func(l label) {
		out = append(out, separator)
		out = append(out, l.name+`="`+labelEscaper.Replace(strings.ToValidUTF8(l.value, "?"))+`"`...)
		separator = ','
	}
	for _, l := range labels {
		add(l)
	}
	if extra.name != "" {
		add(extra)
	}
	if separator == ',' {
		out = append(out, '}')
	}
	return out
}

func appendNumber(out []byte, v float64) []byte {
	switch {
	case math.IsInf(v, 1):
		return append(out, "+Inf"...)
	case math.IsInf(v, -1):
		return append(out, "-Inf"...)
	}
	return strconv.AppendFloat(out, v, 'g', -1, 64)
}

func number(v float64) string { return string(appendNumber(nil, v)) }
