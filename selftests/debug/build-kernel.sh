#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Build a debug kernel from Debian's linux-source: for User Mode Linux, or for a
# PC in QEMU. What is left of it is small and kept outside the tree.
set -euo pipefail

usage()
{
	cat <<'USAGE'
usage: build-kernel.sh --arch um|x86 [--build DIR] [--update]
       build-kernel.sh --arch um|x86 [--build DIR] --print WHAT

Makes DIR/kernel/debug-ARCH: the kernel, its modules, and what a module is built
with. They come from a pack in $KVMM_CACHE (default ~/.cache/kvmm) that was made
of the same configuration by the same compiler; where there is none, the kernel
is built, which takes about ten minutes, and packed; a build that was cut off goes on
where it was. DIR is build.

  --update   build anew if the pack is of an older version than Debian's
             linux-source is now
  --print    name a thing and do nothing: kdir (for make -C ... M=...), kernel,
             modules (holds lib/modules), release, pack (its file name),
             key (of the configuration)

Exit code 4: the source could not be had, and there is no pack.

The configuration is common.config and ARCH.config beside this script; nothing
else is on. A line of theirs that Kconfig doesn't take is an error: options that
vanish silently would make tests pass that test nothing.
USAGE
}

say() { printf 'build-kernel: %s\n' "$*"; }
die() { printf 'build-kernel: %s\n' "$*" >&2; exit 1; }

export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)

arch='' build=$top/build print='' update=''
while (($#)); do
	case $1 in
	--arch) arch=${2-}; shift ;;
	--build) build=${2-}; shift ;;
	--print) print=${2-}; shift ;;
	--update) update=1 ;;
	-h | --help) usage; exit 0 ;;
	*) usage >&2; die "unknown argument: $1" ;;
	esac
	shift
done
# layout: what a pack holds, and how; part of its name.
# The PC's is the bzImage: what QEMU enters in a vmlinux (PVH) runs before there is
# KASAN's shadow, and is instrumented.
case $arch in
um) karch=um layout=1 image=linux targets=(linux modules) ;;
x86) karch=x86_64 layout=2 image=arch/x86/boot/bzImage targets=(bzImage modules) ;;
*) die '--arch is um or x86' ;;
esac
mkdir -p "$build"
build=$(cd "$build" && pwd)
dir=$build/kernel/debug-$arch
cache=${KVMM_CACHE-${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/kvmm}
if [[ -z $cache ]] || ! mkdir -p "$cache" 2>/dev/null; then
	cache=$build/kernel
fi

fragments()
{
	cat "$here/common.config" "$here/$arch.config"
}

key=$({
	echo "$layout $arch"
	gcc -dumpfullversion
	fragments | grep -E '^(CONFIG_|# CONFIG_)' | sort
} | sha256sum | head -c 12)

# the pack of the newest version of the source there is, or nothing
find_pack()
{
	find "$cache" -maxdepth 1 -name "debug-$arch-*-$key.tar.zst" | sort -V | tail -n 1
}

if [[ $print ]]; then
	case $print in
	kdir | kernel | modules) echo "$dir/$print" ;;
	release) cat "$dir/release" ;;
	pack) find_pack ;;
	key) echo "$key" ;;
	*) die "nothing to print by that name: $print" ;;
	esac
	exit 0
fi

# ---- the build ----

# Each line of the fragments must have come true.
check_config()
{
	local line name bad=0
	while IFS= read -r line; do
		case $line in
		CONFIG_*)
			grep -qxF -- "$line" "$1" && continue
			printf 'build-kernel: Kconfig refused %s\n' "$line" >&2
			bad=1 ;;
		'# CONFIG_'*' is not set')
			name=${line#\# }
			grep -q "^${name%% *}=" "$1" || continue
			printf 'build-kernel: Kconfig turned on %s\n' "${name%% *}" >&2
			bad=1 ;;
		esac
	done < <(fragments)
	return $bad
}

# What builds a module, and nothing more: Debian's headers package for a tree
# that has no package.
pack_kdir()
{
	local src=$1 obj=$2 to=$3 archs=(x86)
	[[ $arch != um ]] || archs=(um x86)
	mkdir -p "$to"
	(
		cd "$src"
		find . -maxdepth 1 -name 'Makefile*' -o -maxdepth 1 -name 'Kbuild*'
		find include scripts -type f -o -type l
		find tools/objtool -name Makefile
		for a in "${archs[@]}"; do
			find "arch/$a" -name 'Makefile*' -o -name 'Kbuild*' -o -name Platform
			find "arch/$a" -type d \( -name include -o -name scripts -o -name shared \) \
				-exec find {} -type f \;
			# UML's own asm/ for x86 is not in an include folder
			find "arch/$a" -path '*/um/*' -name '*.h'
		done
	) | sort -u | tar -C "$src" -cf - -T - | tar -C "$to" -xf -
	(
		cd "$obj"
		echo .config
		echo Module.symvers
		find include scripts arch/*/include -type f ! -name '*.o' ! -name '*.cmd'
		for f in tools/objtool/objtool scripts/module.lds; do
			[[ ! -e $f ]] || echo "$f"
		done
	) | sort -u | tar -C "$obj" -cf - -T - | tar -C "$to" -xf -
	# Kconfig's files would only be asked by a tree that is configured.
	rm -rf "$to"/scripts/{kconfig/*.c,coccinelle,gdb,dtc,package}
	find "$to" \( -name '*.pl' -o -name '*.py' \) -path '*/scripts/*' ! -name recordmcount.pl -delete
	rm -rf "$to"/include/dt-bindings
	# Modules get no redzones around their variables: UML would keep them when a
	# module goes, and what comes there next would trip over them.
	[[ $arch != um ]] || sed -i 's/asan-globals=1/asan-globals=0/' "$to/scripts/Makefile.kasan"
	# no one-line trees that point elsewhere
	rm -f "$to/source" "$to/build"
}

build_pack()
{
	local src=$build/kernel/source-6.1 obj=$dir.obj out=$dir.pack version release
	"$top/tools/dist/setup.sh" debug
	"$top/tools/dist/fetch-kernel.sh" --build "$build" source || {
		printf 'build-kernel: no linux-source to build a debug kernel from\n' >&2
		exit 4
	}
	version=$(cat "$build/kernel/.source")
	# A build that was cut off goes on, if it was of the same.
	if [[ $(cat "$obj/key" 2>/dev/null) != "$version $key" ]]; then
		rm -rf "$obj"
	fi
	rm -rf "$out"
	mkdir -p "$obj" "$out"
	fragments >"$obj/fragments"
	echo "$version $key" >"$obj/key"
	say "building $arch from linux-source $version; the log is $obj/log"
	local mk=(env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS -u O -u VARIANT -u CC
		nice -n "${KVMM_NICE:-10}" make -C "$src" "O=$obj" "ARCH=$karch"
		KBUILD_BUILD_USER=kvmm KBUILD_BUILD_HOST=debug)
	{
		"${mk[@]}" KCONFIG_ALLCONFIG="$obj/fragments" allnoconfig &&
		# UML takes itself for a 32-bit one until this file is there
		"${mk[@]}" syncconfig
	} >"$obj/log" 2>&1 || { tail -n 20 "$obj/log" >&2; die 'could not configure'; }
	check_config "$obj/.config" || die 'the configuration is not what was asked for'
	"${mk[@]}" -j "${KVMM_JOBS:-$(nproc)}" "${targets[@]}" >>"$obj/log" 2>&1 || {
		grep -nE 'error|Error|undefined' "$obj/log" | tail -n 20 >&2
		die "the build failed; see $obj/log"
	}
	"${mk[@]}" INSTALL_MOD_PATH="$out/modules" modules_install >>"$obj/log" 2>&1 ||
		{ tail -n 20 "$obj/log" >&2; die 'could not install the modules'; }
	release=$(cat "$obj/include/config/kernel.release")
	rm -f "$out/modules/lib/modules/$release"/{source,build}
	find "$out/modules" -name '*.ko' -exec strip --strip-debug {} +
	cp "$obj/$image" "$out/kernel"
	[[ $arch != um ]] || strip --strip-debug "$out/kernel"
	pack_kdir "$src" "$obj" "$out/kdir"
	find "$out/kdir" -type f -perm -u+x -exec strip --strip-unneeded {} + 2>/dev/null || :
	echo "$release" >"$out/release"
	echo "$version" >"$out/version"
	# by rename: another clone may be looking
	tar -C "$out" -cf - . | zstd -q -10 >"$cache/.debug-$arch.$$"
	mv "$cache/.debug-$arch.$$" "$cache/debug-$arch-$version-$key.tar.zst"
	rm -rf "$obj" "$out"
}

is_ready()
{
	[[ -n $1 && $(cat "$dir/.ready" 2>/dev/null) = "${1##*/}" ]]
}

# Nothing to do, and nobody's build to wait for.
if [[ -z $update ]] && is_ready "$(find_pack)"; then
	exit 0
fi

# One at a time: both would take all of the machine.
mkdir -p "$build/kernel"
exec 9>"$build/kernel/.lock-debug"
flock 9

pack=$(find_pack)
if [[ $pack && $update ]]; then
	now=$("$top/tools/dist/fetch-kernel.sh" --build "$build" --print source-version)
	[[ $pack = *-"$now"-"$key".tar.zst ]] || pack=
fi
if [[ -z $pack ]]; then
	build_pack
	pack=$(find_pack)
fi
! is_ready "$pack" || exit 0
for t in zstd depmod; do
	PATH=$PATH:/usr/sbin:/sbin command -v $t >/dev/null || "$top/tools/dist/setup.sh" vm
done
rm -rf "$dir"
mkdir -p "$dir"
zstd -dcq "$pack" | tar -C "$dir" -xf - || die "could not unpack $pack"
echo "${pack##*/}" >"$dir/.ready"
say "ready: $(cat "$dir/release"), $(du -m "$pack" | cut -f 1) MB packed"
