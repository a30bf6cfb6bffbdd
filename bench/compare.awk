# SPDX-License-Identifier: MIT
# Lines "native {…}" and "belfry {…}", flat JSON, taken in turn: a table of medians, and of the ratio belfry/native
# within each pair (its median, lowest and highest), which drifts of the clocks between pairs do not touch. The variable "under" is
# the heading of the second column.
function median(values, n,    i, j, t) {
	for (i = 2; i <= n; i++)
		for (j = i; j > 1 && values[j - 1] > values[j]; j--) {
			t = values[j]; values[j] = values[j - 1]; values[j - 1] = t
		}
	return n % 2 ? values[(n + 1) / 2] : (values[n / 2] + values[n / 2 + 1]) / 2
}
{
	who = $1
	$1 = ""
	gsub(/[{}" ]/, "")
	runs[who]++
	count = split($0, pairs, ",")
	for (i = 1; i <= count; i++) {
		split(pairs[i], field, ":")
		if (!(field[1] in seen)) {
			seen[field[1]] = 1
			order[++kinds] = field[1]
		}
		value[who, field[1], runs[who]] = field[2]
	}
}
END {
	printf "%-24s %10s %10s %10s %8s  %s\n", "median of pairs", "native", under ? under : "belfry", "more", "ratio", "(low-high)"
	for (k = 1; k <= kinds; k++) {
		name = order[k]
		n = runs["native"] < runs["belfry"] ? runs["native"] : runs["belfry"]
		if (!n)
			continue
		for (i = 1; i <= n; i++) {
			a[i] = value["native", name, i]
			b[i] = value["belfry", name, i]
			r[i] = a[i] ? b[i] / a[i] : 0
			d[i] = b[i] - a[i]
		}
		mr = median(r, n)	# leaves r sorted
		printf "%-24s %10.3f %10.3f %+10.3f %8.4f  (%.4f-%.4f)\n", name, median(a, n), median(b, n),
			median(d, n), mr, r[1], r[n]
	}
}
