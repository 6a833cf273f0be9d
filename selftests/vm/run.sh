#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Boot a stock kernel in QEMU, run tests in it, and tell how they went.
# README.md beside this file explains; usage is below.
set -euo pipefail

usage()
{
	cat <<'USAGE'
usage: run.sh [OPTION...]

What runs in the VM, in the order given:
  --test 'NAME[:SECS] [ARG...]'  a kselftest: TAP on stdout, exit code 0 pass,
                        1 fail, 4 skip. NAME is a program of this machine (a path
                        with a /) or one that --file has packed
  --cmd CMD             a shell command (busybox sh); passes if it exits with 0.
                        It may print TAP and exit with 4 as well
  --label NAME          what the next test or command is called in the results
  --test-timeout SECS   for the tests and commands after it (default 60)
  --interactive         a shell instead; "exit" ends the VM

What is in the VM:
  --file SRC[:DST]      a file or folder, to /t/ or to DST; with the shared
                        libraries that programs need
  --module FILE.ko      insmod it before the tests; may be repeated
  --module-args ARGS    parameters of the last --module
  --kmod NAME           pack and load this module of the kernel, e.g. null_blk
  --kmod-pack NAME      pack it only; a test may modprobe it. loop, brd,
                        null_blk, dm-mod, -flakey and -delay are always there
  --env NAME=VALUE      environment of the tests
  --rmmod               at the end unload what --module loaded; it must succeed

The machine:
  --cpus N (2)   --mem SIZE (1536M)   --numa NODES (1)
  --disk SIZE (1G)      fresh ext4 at /mnt/disk; 0: none
  --raw SIZE (1G)       empty block device /dev/vdb
  --append ARGS         more for the kernel's command line
  --kernel SERIES       stock kernel to boot (6.1); see tools/dist/fetch-kernel.sh
  --image FILE --modules DIR   another kernel, and the folder with its lib/modules
  --uml                 the image is User Mode Linux: a program of this machine,
                        no emulator; one CPU
  --accel kvm|tcg       instead of finding out; also $KVMM_VM_ACCEL

Results:
  --name NAME           of this run (vm); files go to BUILD/vm-logs/NAME
  --log DIR             they go there instead
  --out PATH            fetch this file or folder of the VM to DIR/out at the end
  --allow REGEX         kernel log lines that are no failure (awk); may be repeated
  --fresh               after a test during which the kernel reported something or
                        died, boot again for the rest: one report can hide others
  --boot-timeout SECS   until init must have begun
  --timeout SECS        for the whole run (default: from the tests' timeouts)
  --quiet               print the output of failed tests only
  --build DIR           build folder (build)

Exit code: 0 all passed, 1 something failed, 2 nothing could be run.
DIR holds console.log (the kernel), test.log (the tests), summary (counts, one
NAME=VALUE a line) and points (one test point a line: status, test, description).
USAGE
}

die() { printf 'vm: %s\n' "$*" >&2; exit 2; }

export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)

build=$top/build name=vm log='' series=6.1 image='' moddir=''
cpus=2 mem=1536M numa=1 disk=1G raw=1G append='' accel=${KVMM_VM_ACCEL-}
interactive='' rmmod='' quiet='' timeout='' secs=60 allow='' uml='' fresh='' boot_timeout=''
label='' tests=() names=() files=() mods=() modargs=() kmods=() packs=() envs=() outs=()

while (($#)); do
	opt=$1
	case $opt in
	--interactive) interactive=1; shift; continue ;;
	--rmmod) rmmod=1; shift; continue ;;
	--quiet) quiet=1; shift; continue ;;
	--uml) uml=1; shift; continue ;;
	--fresh) fresh=1; shift; continue ;;
	-h | --help) usage; exit 0 ;;
	--*=*) die "write '${opt%%=*} VALUE', without =" ;;
	esac
	(($# > 1)) || die "unknown option, or one without its value: $opt (see --help)"
	val=$2
	shift 2
	case $opt in
	--test) tests+=("test|$secs|$val"); names+=("$label"); label= ;;
	--cmd) tests+=("cmd|$secs|$val"); names+=("$label"); label= ;;
	--label) label=$val ;;
	--test-timeout) secs=$val ;;
	--file) files+=("$val") ;;
	--module) mods+=("$val"); modargs+=('') ;;
	--module-args)
		((${#mods[@]})) || die '--module-args comes after its --module'
		modargs[-1]=$val ;;
	--kmod) kmods+=("$val") ;;
	--kmod-pack) packs+=("$val") ;;
	--env) envs+=("$val") ;;
	--cpus) cpus=$val ;;
	--mem) mem=$val ;;
	--numa) numa=$val ;;
	--disk) disk=$val ;;
	--raw) raw=$val ;;
	--append) append=$val ;;
	--kernel) series=$val ;;
	--image) image=$val ;;
	--modules) moddir=$val ;;
	--accel) accel=$val ;;
	--name) name=$val ;;
	--log) log=$val ;;
	--out) outs+=("$val") ;;
	--allow) allow=${allow:+$allow|}$val ;;
	--timeout) timeout=$val ;;
	--boot-timeout) boot_timeout=$val ;;
	--build) build=$val ;;
	*) die "unknown option: $opt (see --help)" ;;
	esac
done

((${#tests[@]})) || [[ $interactive ]] || die 'nothing to run: give --test, --cmd or --interactive'
[[ $build = /* ]] || build=$PWD/$build
log=${log:-$build/vm-logs/$name}
if [[ $uml ]]; then
	[[ $image ]] || die '--uml needs --image'
	((numa == 1)) || die 'User Mode Linux has no NUMA nodes'
	cpus=1 accel=uml
fi
for tool in $([[ $uml ]] || echo qemu-system-x86_64) busybox cpio mkfs.ext4 modinfo depmod; do
	command -v "$tool" >/dev/null || die "$tool is missing; run tools/dist/setup.sh vm"
done
if ldd "$(command -v busybox)" >/dev/null 2>&1; then
	die 'busybox is not the static one; run tools/dist/setup.sh vm'
fi

if [[ -z $image ]]; then
	fetch=("$top/tools/dist/fetch-kernel.sh" --kernel "$series" --build "$build")
	"${fetch[@]}" image || die 'no kernel to boot'
	image=$("${fetch[@]}" --print kernel)
	moddir=$("${fetch[@]}" --print modules)
fi
[[ -f $image ]] || die "no kernel image $image"
release=
if [[ $moddir ]]; then
	[[ -d $moddir/lib/modules ]] || die "no lib/modules in $moddir"
	release=$(basename "$(echo "$moddir"/lib/modules/*)")
fi

rm -rf "$log"
mkdir -p "$log"
tmp=$(mktemp -d "${TMPDIR:-/tmp}/kvmm-vm.XXXXXX")
qemu=
kill_vm()
{
	[[ $qemu ]] || return 0
	# User Mode Linux leads a group: its own processes are processes here.
	if [[ $uml ]]; then
		kill -KILL -- "-$qemu" 2>/dev/null || :
	fi
	kill -KILL "$qemu" 2>/dev/null || :
	wait "$qemu" 2>/dev/null || :
	qemu=
}
cleanup()
{
	kill_vm
	rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM

# ---- what goes into the VM ----

root=$tmp/root
mkdir -p "$root"/{bin,sbin,etc,t,kvmm-vm,usr/lib/kvmm-vm,lib/modules}
cp "$(command -v busybox)" "$root/bin/busybox"
ln -s /bin/busybox "$root/sbin/modprobe"	# for what the kernel loads by itself
printf 'root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n' >"$root/etc/passwd"
printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"
cp "$here/init" "$root/init"
chmod 755 "$root/init"

# Libraries of the system go to where they are here; others, found by way of an
# rpath or LD_LIBRARY_PATH, to a folder that the VM's LD_LIBRARY_PATH names.
pack_libs()
{
	local out lib path dst
	[[ $(head -c 4 "$1" | od -An -t x1 | tr -d ' \n') = 7f454c46 ]] || return 0
	[[ $1 != *.ko ]] || return 0
	out=$(ldd "$1" 2>/dev/null) || return 0		# static
	if [[ $out = *'not found'* ]]; then
		die "$1 needs a library that is not found: $(grep 'not found' <<<"$out" | head -n 1)"
	fi
	while read -r lib path; do
		case $path in
		/lib/* | /lib64/* | /usr/lib/*) dst=$root$path ;;
		*) dst=$root/usr/lib/kvmm-vm/$lib ;;
		esac
		[[ -e $dst ]] || install -D -m 755 "$path" "$dst"
	done < <(sed -n 's,^\t\([^ ]*\) => \(/[^ ]*\) .*,\1 \2,p; s,^\t\(/[^ ]*\) (.*,- \1,p' <<<"$out")
}

pack()
{
	local src=$1 dst=$root$2 f
	[[ -e $src ]] || die "no such file: $src"
	mkdir -p "$(dirname "$dst")"
	cp -RL "$src" "$dst"
	while IFS= read -r f; do
		pack_libs "$f"
	done < <(find -L "$src" -type f)
}

for f in "${files[@]}"; do
	case $f in
	*:*) pack "${f%%:*}" "${f#*:}" ;;
	*) pack "$f" "/t/$(basename "$f")" ;;
	esac
done

# Modules of the kernel, with all that they need. What is built in, or is not
# there in another kernel, is left out.
declare -A packed=()
load=()
mdir=$moddir/lib/modules/$release
pack_kmod()
{
	local want=$1 line f dst soft by
	want=${want//-/_}
	line=$(awk -F: -v m="$want" '{
		n = $1; sub(/.*\//, "", n); sub(/\.ko(\..*)?$/, "", n); gsub(/-/, "_", n)
		if (n == m) { print; exit }
	}' "$mdir/modules.dep" 2>/dev/null) || :
	[[ $line ]] || return 1
	for f in ${line/:/}; do
		[[ -z ${packed[$f]-} ]] || continue
		packed[$f]=1
		dst=$root/lib/modules/$release/$f
		mkdir -p "$(dirname "$dst")"
		case $f in
		*.xz) xz -dc "$mdir/$f" >"${dst%.xz}" ;;
		*.zst) zstd -dcq "$mdir/$f" >"${dst%.zst}" ;;
		*.gz) gzip -dc "$mdir/$f" >"${dst%.gz}" ;;
		*) cp "$mdir/$f" "$dst" ;;
		esac
		# What it asks for by another name once it runs, such as crc32c.
		f=${f##*/}
		f=${f%%.ko*}
		# shellcheck disable=SC2013 # words
		for soft in $(sed -n "s/^softdep ${f//[-_]/[-_]} pre: //p" "$mdir/modules.softdep" 2>/dev/null); do
			pack_kmod "$soft" || :
			for by in $(sed -n "s/^alias $soft //p" "$mdir/modules.alias" 2>/dev/null); do
				pack_kmod "$by" || :
			done
		done
	done
}

is_builtin()
{
	grep -qE "/${1//[-_]/[-_]}\.ko" "$mdir/modules.builtin" 2>/dev/null
}

: >"$root/kvmm-vm/insmod"
if [[ $release ]]; then
	needed=(ext4 "${kmods[@]}")
	[[ $uml ]] || needed+=(virtio_pci virtio_blk)
	for f in "${mods[@]}"; do
		[[ -f $f ]] || die "no module $f"
		IFS=, read -r -a deps <<<"$(modinfo -F depends "$f")"
		for m in "${deps[@]}"; do
			# one module under test may need another one, given before it
			[[ " ${mods[*]##*/} " = *" $m.ko "* ]] || needed+=("$m")
		done
	done
	for m in "${needed[@]}"; do
		if pack_kmod "$m"; then
			load+=("$m")
		elif ! is_builtin "$m"; then
			die "the kernel $release has no module $m"
		fi
	done
	for m in loop brd null_blk dm-mod dm-flakey dm-delay; do
		pack_kmod "$m" || :
	done
	for m in "${packs[@]}"; do
		pack_kmod "$m" || is_builtin "$m" || die "the kernel $release has no module $m"
	done
	mkdir -p "$root/lib/modules/$release"
	cp "$mdir"/modules.{order,builtin} "$root/lib/modules/$release/" 2>/dev/null || :
	depmod -b "$root" "$release" 2>/dev/null || die 'depmod failed'
fi
for i in "${!mods[@]}"; do
	f=${mods[i]}
	[[ -f $f ]] || die "no module $f"
	cp "$f" "$root/t/$(basename "$f")"
	# Debug information is of no use there, and much of the file.
	strip --strip-debug "$root/t/$(basename "$f")" 2>/dev/null || :
	printf '/t/%s %s\n' "$(basename "$f")" "${modargs[i]}" >>"$root/kvmm-vm/insmod"
done

devs=vd
[[ -z $uml ]] || devs=ubd

# The tests: a script each, and a list.
labels=() limits=()
: >"$root/kvmm-vm/tests"
for i in "${!tests[@]}"; do
	IFS='|' read -r kind secs val <<<"${tests[i]}"
	val=${tests[i]#*|*|}		# may have more lines, and more |
	script=$root/kvmm-vm/$i.sh
	{
		printf 'export LD_LIBRARY_PATH=/usr/lib/kvmm-vm\n'
		printf 'export KVMM_DISK=/mnt/disk KVMM_BLKDEV=/dev/%sb\n' "$devs"
		printf '. /kvmm-vm/env\ncd /tmp\n'
	} >"$script"
	if [[ $kind = test ]]; then
		prog=${val%% *}
		args=${val#"$prog"}
		if [[ $prog =~ ^(.*):([0-9]+)$ ]]; then
			prog=${BASH_REMATCH[1]}
			secs=${BASH_REMATCH[2]}
		fi
		label=$(basename "$prog")
		if [[ $prog = */* && -e $prog ]]; then
			[[ -e $root/t/$label ]] || pack "$prog" "/t/$label"
			prog=/t/$label
		fi
		printf 'exec %s%s\n' "$prog" "$args" >>"$script"
	else
		label=${val%%$'\n'*}
		printf '%s\n' "$val" >>"$script"
	fi
	label=${names[i]:-$label}
	[[ $secs =~ ^[0-9]+$ ]] || die "not a number of seconds: $secs"
	labels+=("$label")
	limits+=("$secs")
	printf '%s %s %s\n' "$i" "$secs" "$label" >>"$root/kvmm-vm/tests"
done

# ---- the machine ----

tcg='tcg,thread=multi'
base_append='console=ttyS0 panic=-1 oops=panic loglevel=7 rcupdate.rcu_cpu_stall_timeout=60 rcupdate.rcu_cpu_stall_suppress_at_boot=1'

# Its memory is a file where TMPDIR says, /dev/shm unless that is too small.
start_uml() # console test-log append disk...
{
	local con=$1 out=$2 app=$3 args=() i=0
	shift 3
	for disk_file; do
		args+=("ubd$i=$disk_file")
		i=$((i + 1))
	done
	# shellcheck disable=SC2086 # arguments of the kernel
	exec setsid "$image" "mem=$mem" "initrd=$tmp/initrd" "uml_dir=$tmp" umid=uml \
		con=null con0=null,fd:1 ssl=null ssl1=null,fd:6 "${args[@]}" $app \
		6>>"$out" >>"$con" 2>&1 </dev/null
}

# Takes the place of the shell, so that who kills the shell kills the machine.
start_qemu() # accel initrd console test-log append [qemu arguments]
{
	local a=$1 initrd=$2 con=$3 out=$4 app=$5
	shift 5
	exec qemu-system-x86_64 -M q35 -accel "$a" -cpu max -nodefaults -no-user-config \
		-display none -no-reboot -kernel "$image" -initrd "$initrd" \
		-append "$app" -serial "$con" -serial "file:$out" "$@"
}

# /dev/kvm may be there and still be of no use, as in some nested machines; only
# a boot tells. The answer holds for this boot of this machine.
probe_kvm()
{
	local key cachefile=$build/vm-cache/accel got=tcg
	if [[ ! -w /dev/kvm ]]; then
		echo tcg
		return
	fi
	mkdir -p "$build/vm-cache"
	key="$(cat /proc/sys/kernel/random/boot_id 2>/dev/null || :) $(qemu-system-x86_64 --version | head -n 1)"
	(
		flock 9
		if [[ $(head -n 1 "$cachefile" 2>/dev/null) = "$key" ]]; then
			sed -n 2p "$cachefile"
			exit
		fi
		mkdir -p "$tmp/probe/bin"
		cp "$root/bin/busybox" "$tmp/probe/bin/"
		printf '#!/bin/busybox sh\n/bin/busybox echo PROBE-OK >/dev/console\n/bin/busybox poweroff -f\n' >"$tmp/probe/init"
		chmod 755 "$tmp/probe/init"
		(cd "$tmp/probe" && find . | cpio -o -H newc -R 0:0 --quiet) >"$tmp/probe.cpio"
		: >"$tmp/probe.log"
		export -f start_qemu
		export image
		timeout -k 2 20 bash -c 'start_qemu "$@"' - kvm "$tmp/probe.cpio" "file:$tmp/probe.log" \
			"$tmp/probe.log2" "console=ttyS0 panic=-1" -smp 1 -m 512M \
			>/dev/null 2>&1 9>&- </dev/null || :
		! grep -q PROBE-OK "$tmp/probe.log" || got=kvm
		printf '%s\n%s\n' "$key" "$got" >"$cachefile"
		echo "$got"
	) 9>"$build/vm-cache/accel.lock" 2>/dev/null
}

case $accel in
'') accel=$(probe_kvm) ;;
kvm | tcg | uml) ;;
*) die "no such accelerator: $accel" ;;
esac
if [[ $accel = tcg ]]; then
	accel_arg=$tcg hung=60 boot_limit=120 slack=60
elif [[ $accel = uml ]]; then
	accel_arg='' hung=40 boot_limit=60 slack=30
else
	accel_arg=kvm hung=20 boot_limit=60 slack=30
fi
boot_limit=${boot_timeout:-$boot_limit}

{
	for e in "${envs[@]}"; do
		printf 'export %s=%q\n' "${e%%=*}" "${e#*=}"
	done
	printf 'export KVMM_VM=1 KVMM_VM_ACCEL=%s\n' "$accel"
} >"$root/kvmm-vm/env"
{
	printf 'MODULES="%s"\n' "${load[*]-}"
	printf 'DISK=%s\n' "$([[ $disk = 0 ]] || echo 1)"
	printf 'HUNG_SECS=%s\nINTERACTIVE=%s\nRMMOD=%s\n' "$hung" "$interactive" "$rmmod"
	printf 'OUT="%s"\nDEVS=%s\nFRESH=%s\n' "${outs[*]-}" "$devs" "$fresh"
} >"$root/kvmm-vm/conf"
# Not compressed: unpacking takes longer in an emulator than reading.
(cd "$root" && find . | cpio -o -H newc -R 0:0 --quiet) >"$tmp/initrd"

margs=(-smp "$cpus" -m "$mem")
if ((numa > 1)); then
	each=$(($(numfmt --from=iec "$mem") / numa >> 20))
	margs=(-smp "$cpus" -m "$((each * numa))M")
	for ((i = 0; i < numa; i++)); do
		margs+=(-object "memory-backend-ram,id=m$i,size=${each}M" -numa "node,nodeid=$i,memdev=m$i")
	done
	for ((i = 0; i < cpus; i++)); do
		margs+=(-numa "cpu,node-id=$((i * numa / cpus)),socket-id=$i")
	done
	margs[1]=$cpus,sockets=$cpus
fi
disks=()
drive()
{
	disks+=("$1")
	# Contents matter for one run only, so nothing is ever flushed to the host's disk.
	margs+=(-drive "file=$1,if=none,id=$2,format=raw,cache=unsafe,discard=unmap"
		-device "virtio-blk-pci,drive=$2")
}
make_disks()
{
	rm -f "$tmp"/disk.{a,b,c}
	truncate -s "$([[ $disk = 0 ]] && echo 1M || echo "$disk")" "$tmp/disk.a"
	if [[ $disk != 0 ]]; then
		# Nothing left for the kernel to initialize behind the tests' backs.
		mkfs.ext4 -q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$tmp/disk.a" >"$log/mkfs.log" 2>&1 ||
			die "mkfs.ext4 failed: $(cat "$log/mkfs.log")"
		rm -f "$log/mkfs.log"
	fi
	truncate -s "$raw" "$tmp/disk.b"
	truncate -s 4G "$tmp/disk.c"
}
drive "$tmp/disk.a" a
drive "$tmp/disk.b" b
((${#outs[@]} == 0)) || drive "$tmp/disk.c" c

if [[ $interactive ]]; then
	make_disks
	if [[ $uml ]]; then
		"$image" "mem=$mem" "initrd=$tmp/initrd" "uml_dir=$tmp" umid=uml con=null \
			con0=fd:0,fd:1 ssl=null ssl1=null,fd:6 "ubd0=${disks[0]}" \
			"ubd1=${disks[1]}" 6>"$log/test.log"
		exit
	fi
	(start_qemu "$accel_arg" "$tmp/initrd" mon:stdio "$log/test.log" \
		"$base_append $append" "${margs[@]}")
	exit
fi

if [[ -z $timeout ]]; then
	timeout=$((boot_limit + 120))
	for s in "${limits[@]}"; do
		timeout=$((timeout + s + 20))
	done
fi

# ---- run it, and read what comes ----

passed=0 failed=0 skipped=0
: >"$log/points"
point() # passed|failed|skipped test description
{
	printf '%s\t%s\t%s\n' "$1" "$2" "$3" >>"$log/points"
	case $1 in
	passed) passed=$((passed + 1)) ;;
	failed) failed=$((failed + 1)) ;;
	skipped) skipped=$((skipped + 1)) ;;
	esac
}

booted='' done='' cur='' next=0 cur_deadline=0
plan='' seen=0 t_failed=0 t_skipped=0
held=()

show() # a line of the current test, or all held ones when it has failed
{
	if [[ $quiet ]]; then
		held+=("$1")
	else
		printf '%s\n' "$1"
	fi
}
release_held()
{
	((${#held[@]} == 0)) || printf '%s\n' "${held[@]}"
	held=()
}

begin_test()
{
	cur=$1
	plan='' seen=0 t_failed=0 t_skipped=0 held=()
	cur_deadline=$((SECONDS + limits[cur] + slack))
	show "# --- ${labels[cur]}"
}

end_test() # exit code or word
{
	local label=${labels[cur]} why='' verdict
	case $1 in
	timeout) why="no end within ${limits[cur]} s" ;;
	stuck) why="stuck in the kernel, not even SIGKILL ends it" ;;
	vm) why=$2; set -- vm ;;
	0)
		if ((t_failed)); then
			:	# its own points say what failed
		elif [[ $plan && $plan != "$seen" ]]; then
			why="planned $plan test points, $seen came"
		fi ;;
	4)
		if [[ $plan && $plan != 0 && $seen != 0 && $plan != "$seen" ]]; then
			why="planned $plan test points, $seen came"
		fi ;;
	*) ((t_failed)) || why="exit code $1" ;;
	esac
	if [[ $why ]]; then
		point failed "$label" "$why"
		show "not ok - $label: $why"
	elif ((seen == 0)); then
		if [[ $1 = 4 ]]; then
			point skipped "$label" ''
		else
			point passed "$label" ''
		fi
	fi
	if [[ $why ]] || ((t_failed)); then
		verdict=FAIL
	elif [[ $1 = 4 ]]; then
		verdict=skip
	else
		verdict=pass
	fi
	show "# $label: $verdict ($seen points${2:+, $2 s})"
	[[ $verdict != FAIL ]] || release_held
	held=()
	next=$((cur + 1))
	cur=
}

tap_line()
{
	[[ $1 =~ ^(not\ )?ok([\ ]|$) ]] || {
		[[ $1 =~ ^1\.\.([0-9]+) ]] && plan=${BASH_REMATCH[1]}
		return 0
	}
	local desc=${1#not } status=passed
	desc=${desc#ok}
	desc=${desc# }
	seen=$((seen + 1))
	shopt -s nocasematch
	if [[ $1 =~ \#\ *(SKIP|TODO) ]]; then
		status=skipped
	elif [[ $1 = 'not ok'* ]]; then
		status=failed
	fi
	shopt -u nocasematch
	[[ $status != failed ]] || t_failed=$((t_failed + 1))
	[[ $status != skipped ]] || t_skipped=$((t_skipped + 1))
	point "$status" "${labels[cur]}" "$desc"
}

marker()
{
	local a b c d
	read -r a b c d <<<"$1"
	case $a in
	init) booted=$SECONDS ;;
	begin) begin_test "$b" ;;
	end)
		# shellcheck disable=SC2086 # two times
		end_test "$c" "$(awk -v t="$d" 'BEGIN { split(t, x, " "); printf "%.1f", x[2] - x[1] }')" ;;
	stuck) end_test stuck; done=stuck ;;
	insmod)
		if [[ $b != 0 ]]; then
			point failed insmod "$c $d"
			printf 'not ok - insmod %s\n' "$c $d"
			done=insmod
		fi ;;
	rmmod)
		if [[ $b = 0 ]]; then
			point passed rmmod "$c"
			[[ $quiet ]] || printf 'ok - rmmod %s\n' "$c"
		else
			point failed rmmod "$c $d"
			printf 'not ok - rmmod %s\n' "$c $d"
		fi ;;
	missing) printf '# no %s to fetch\n' "$b" ;;
	note) printf '# %s\n' "$b $c $d" ;;
	error)
		point failed vm "$b $c $d"
		printf 'not ok - vm: %s\n' "$b $c $d"
		done=error ;;
	reported)
		[[ $fresh ]] && ((next < ${#labels[@]})) && again=1
		done=reported ;;
	done) done=yes ;;
	esac
}

reports=0
scan_log() # of the VM that has just ended
{
	local n
	awk -v allow="$allow" -f "$here/klog-scan.awk" "$log/console.log" >"$tmp/klog"
	n=$(sed -n 's/^reports //p' "$tmp/klog")
	((n > 0)) || return 0
	reports=$((reports + n))
	sed '/^reports /d' "$tmp/klog" | tee -a "$log/klog"
}

take_out() # to this folder of the log's
{
	((${#outs[@]})) || return 0
	mkdir -p "$log/$1"
	tar -xf "$tmp/disk.c" -C "$log/$1" 2>/dev/null ||
		printf '# nothing could be fetched from the VM\n'
}

# A marker begins with a newline, to end what was printed without one. So an empty
# line before a marker is nobody's; others are kept until it is known which.
part='' empty=0
read_output()
{
	local line
	while IFS= read -r line <&5 || { part+=$line; false; }; do
		line=$part$line
		part=
		case $line in
		'') empty=$((empty + 1)) ;;
		'@@kvmm-vm '*)
			empty=0
			marker "${line#@@kvmm-vm }" ;;
		*)
			if [[ $cur ]]; then
				for (( ; empty > 0; empty--)); do
					show ''
				done
				show "$line"
				tap_line "$line"
			else
				printf '%s\n' "$line"
			fi ;;
		esac
	done 2>/dev/null
}

printf '# vm %s: %s, %s, %s CPUs, %s\n' "$name" "${release:-$(basename "$image")}" "$accel" "$cpus" "$mem"
boots=0 tries=0 rounds=1
died=
while :; do
	boots=$((boots + 1))
	tries=$((tries + 1))
	make_disks
	: >"$log/test.log"
	: >"$log/console.log"
	t0=$SECONDS
	start_ms=${start_ms:-$(date +%s%3N)}
	boot_start=$(date +%s%3N)
	booted='' done='' done_at='' again='' died='' part='' empty=0
	first=$next
	if [[ $uml ]]; then
		start_uml "$log/console.log" "$log/test.log" "kvmm_first=$first $append" "${disks[@]}" &
	else
		start_qemu "$accel_arg" "$tmp/initrd" "file:$log/console.log" "$log/test.log" \
			"$base_append kvmm_first=$first $append" "${margs[@]}" >"$log/qemu.log" 2>&1 </dev/null &
	fi
	qemu=$!
	exec 5<"$log/test.log"
	while :; do
		alive=1
		kill -0 "$qemu" 2>/dev/null || alive=
		was=$booted
		read_output
		[[ $was || ! $booted ]] || boot_ms=$(($(date +%s%3N) - boot_start))
		[[ $alive ]] || break
		if [[ ! $booted ]] && ((SECONDS - t0 > boot_limit)); then
			died="did not boot within $boot_limit s"
		elif [[ $cur ]] && ((SECONDS > cur_deadline)); then
			died='hung'
		elif ((SECONDS - t0 > timeout)); then
			died="did not end within $timeout s"
		elif [[ $done && ${done_at:=$SECONDS} ]] && ((SECONDS - done_at > 30)); then
			break		# it could not even turn itself off; the results are in
		fi
		[[ -z $died ]] || break
		sleep 0.1
	done
	kill_vm
	exec 5<&-
	if [[ ! $booted ]]; then
		# Emulated boots fail now and then for no reason of ours. No test has run,
		# so another try hides nothing; once one has begun there is none.
		died=${died:-died before init}
		((tries < 3)) || break
		printf '# boot %d failed (%s), trying again\n' "$boots" "$died"
		cp "$log/console.log" "$log/console.boot$boots.log"
		continue
	fi
	if [[ -n $part ]] && [[ $cur ]]; then
		show "$part"
	fi
	if [[ $cur ]]; then
		end_test vm "the VM ${died:-died}"
		again=1
	elif [[ ! $done ]]; then
		point failed vm "${died:-died}"
		printf 'not ok - vm: %s\n' "${died:-died}"
	elif [[ $done = stuck ]]; then
		again=1
	fi
	if [[ ! $fresh || ! $again ]] || ((next >= ${#labels[@]} || next == first)); then
		break
	fi
	# What comes next gets a kernel that has not seen this.
	scan_log
	take_out "out.$rounds"
	mv "$log/console.log" "$log/console.$rounds.log"
	mv "$log/test.log" "$log/test.$rounds.log"
	rounds=$((rounds + 1))
	tries=0
	printf '# booting again for the remaining tests\n'
done

if [[ ! $booted ]]; then
	point failed vm "$died, $tries times"
	printf 'not ok - vm: %s, %d times\n' "$died" "$tries"
	tail -n 15 "$log/console.log" "$log/qemu.log" 2>/dev/null | sed 's/^/#   /'
fi
# What did not run has not passed.
while ((next < ${#labels[@]})); do
	point failed "${labels[next]}" 'not run'
	printf 'not ok - %s: not run\n' "${labels[next]}"
	next=$((next + 1))
done

if [[ $booted ]]; then
	scan_log
	take_out out
fi
if ((reports == 0)); then
	[[ ! $booted ]] || point passed kernel-log ''
else
	point failed kernel-log "$reports reports"
	printf 'not ok - kernel log: %s reports\n' "$reports"
fi

result=pass
((failed == 0)) || result=fail
secs=$(awk -v ms="$(($(date +%s%3N) - start_ms))" 'BEGIN { printf "%.1f", ms / 1000 }')
boot=$(awk -v ms="${boot_ms:-0}" 'BEGIN { printf "%.1f", ms / 1000 }')
cat >"$log/summary" <<SUMMARY
name=$name
result=$result
passed=$passed
failed=$failed
skipped=$skipped
accel=$accel
kernel=${release:-$(basename "$image")}
boots=$boots
reports=$reports
boot_seconds=$boot
seconds=$secs
SUMMARY
printf '# vm %s: %d passed, %d failed, %d skipped (%s, boot %s s, all %s s), logs in %s\n' \
	"$name" "$passed" "$failed" "$skipped" "$accel" "$boot" "$secs" "${log#"$top/"}"
[[ $result = pass ]]
