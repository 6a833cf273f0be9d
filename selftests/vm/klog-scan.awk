# SPDX-License-Identifier: MIT
#
# Finds what must not be in a kernel log. Prints an excerpt of each report, and
# at last "reports N". Variable allow: a regular expression for lines that the
# caller expects.

function report()
{
	reports++
	if (reports <= 5) {
		printf "# kernel log%s:\n", test == "" ? "" : ", during " test
		# A warning's own text comes before the line that tells of it.
		printf "%s", cut
		left = 40
	}
}

BEGIN { test = "boot" }

{
	gsub(/[\r\033]/, "")
	text = $0
	# time stamp, and the caller where the kernel is built to print it
	sub(/^\[ *[0-9]+\.[0-9]+\](\[ *[TC][0-9]+\])? ?/, "", text)
}

text ~ /^kvmm-vm: / {
	n = split(text, w, " ")
	if (w[2] == "begin") {
		test = w[5]
		for (i = 6; i <= n; i++)
			test = test " " w[i]
	} else if (w[2] == "end") {
		test = "the time after " test
	} else if (w[2] == "dump") {
		dump = w[3] == "begin"
	} else if (w[2] != "note" && w[2] != "missing") {
		test = w[2] " " w[3]
	}
	left = 0
	cut = ""
	next
}

dump { next }	# asked for, when a test ran out of time

allow != "" && text ~ allow { rcu = 0; next }

# The line that names the place comes next; it counts, so that allow can see it.
text ~ /^WARNING: suspicious RCU usage/ { rcu = 1; cut = "#   " $0 "\n"; next }

{
	bad = text ~ /^WARNING:|BUG[: ]|kernel BUG at|Oops|Kernel panic|general protection fault|double fault|stack segment:|Internal error/ ||
		text ~ /KASAN|UBSAN|KCSAN|KFENCE|ODEBUG|DMA-API: .*(error|leak|ERR)|refcount_t: |kmemleak: [0-9]+ new/ ||
		text ~ /blocked for more than|soft lockup|hard LOCKUP|workqueue lockup|rcu.*detected (expedited )?stall|rcu.*self-detected stall|RCU stall/ ||
		text ~ /possible circular locking|possible recursive locking|inconsistent lock state|suspicious RCU usage|non-static key|lock held when returning|bad unlock balance|scheduling while atomic|sleeping function called/ ||
		text ~ /list_(add|del) corruption|Bad page (state|map)|Bad rss-counter|bad: scheduling|page allocation failure|DEBUG_LOCKS_WARN|cannot create duplicate filename|Objects remaining in|called with unsafe|stack-protector/
	if (rcu && text ~ /^[^ ]+:[0-9]+ .*!$/)
		bad = 1
	# Boot lines of the sanitizers' own: they are there, not: they found something.
	if (text ~ /KernelAddressSanitizer|kasan: (Initialized|Mapped)|kfence: initialized|KASAN (init|shadow)/)
		bad = 0
	# The lines of one report match several times; count it once.
	if (bad && left < 36) {
		report()
		cut = ""
		rcu = 0
	}
	if (left > 0) {
		print "#   " $0
		left--
		if (text ~ /end trace|end Kernel panic/)
			left = 0
	}
	if (text ~ /cut here/) {
		cut = "#   " $0 "\n"
		cut_lines = 1
	} else if (cut != "" && !rcu) {
		cut = ++cut_lines > 4 ? "" : cut "#   " $0 "\n"
	}
}

END {
	if (rcu)	# the log ends here
		report()
	print "reports " reports + 0
}
