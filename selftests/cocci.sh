#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The kernel's semantic patches (coccicheck) over the module: cocci.sh SCRIPTS-DIR
# Prints what they find; nothing is good. SCRIPTS-DIR is scripts/coccinelle of
# linux-source.
set -u
scripts=$1

# Those about what the module has: memory, lists, locks, tests, errors. Left out are
# drivers' and devices' own, and those that need an OCaml compiler or minutes.
wanted='api/alloc/alloc_cast api/alloc/zalloc-simple api/atomic_as_refcounter
api/debugfs/debugfs_simple_attr api/err_cast api/kfree_mismatch api/kstrdup
api/kvmalloc api/memdup api/memdup_user api/vma_pages
free/ifnullfree free/kfree free/kfreeaddr
iterators/itnull iterators/list_entry_update iterators/use_after_iter
locks/call_kern locks/double_lock locks/flags locks/mini_lock
misc/array_size misc/array_size_dup misc/badty misc/boolconv misc/cond_no_effect
misc/doubleinit misc/excluded_middle misc/flexible_array misc/ifcol misc/noderef
misc/orplus misc/returnvar misc/semicolon misc/swap misc/test_addr
misc/uninitialized_var misc/warn
null/deref_null null/eno null/kmerr
tests/doublebitand tests/doubletest tests/odd_ptr_err
tests/unsigned_lesser_than_zero'

# script:file:function where what is said is meant to be: kvmm_pool_lock() returns
# with the lock it is named for.
allow='mini_lock:kmod/batch.c:kvmm_pool_lock'

check()
{
	local file=$scripts/$1.cocci name=${1##*/} out where line func opts
	[[ -f $file ]] || { echo "no $file"; return; }
	opts=$(sed -n 's,^// Options: *,,p' "$file" | head -n 1)
	# shellcheck disable=SC2086 # several options
	out=$(timeout 300 spatch -D report --very-quiet $opts --cocci-file "$file" \
		kmod 2>&1) || echo "$name: spatch failed: $out"
	grep -E '^[^ ]+:[0-9]+:[0-9]+' <<<"$out" | sort -u | while IFS=: read -r where line _; do
		# the function's name: the last line before that begins one
		func=$(head -n "$line" "$where" | grep -E '^[a-z].*\(' | tail -n 1 |
			sed 's/(.*//; s/.*[ *]//')
		case " $allow " in
		*" $name:$where:$func "*) ;;
		*) grep -F "$where:$line:" <<<"$out" | sort -u | sed "s,^,$name: ," ;;
		esac
	done
}
export -f check
export scripts allow
xargs -n 1 -P "$(nproc)" bash -c 'check "$1"' - <<<"$wanted"
