#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Prepares vm.sh: packs kvmm-llama with the C library and loader it was built
# for, a small model, and requests.  vm-host.sh BUILD-DIR OUT-DIR [--fetch]
# Exits with 4, and says why, where there is no libllama for the VM.
set -eu
build=$1 out=$2
shift 2

if ! why=$(tools/llama/find.sh --build "$build" "$@" 2>&1 >/dev/null); then
	echo "${why##*$'\n'}"
	exit 4
fi
make --no-print-directory -s llama LLAMA_FETCH="$*" B="$build"
var() { sed -n "s/^LLAMA_$1 := //p" "$build/llama/found.mk"; }
if [ "$(var KIND)" != root ]; then
	echo "libllama is this system's own, and what it loads is not known: give LLAMA_ROOT"
	exit 4
fi
rm -rf "$out"
mkdir -p "$out/pack/lib" "$out/pack/backends"
program=$build/llama/tools/llama/kvmm-llama
cp "$program.bin" "$out/pack/kvmm-llama.bin"
strip --strip-debug "$out/pack/kvmm-llama.bin"
# Any processor, and an emulator, has what these ask for.
backends="$(var BACKENDS)/libggml-cpu-x64.so $(var BACKENDS)/libggml-cpu-sse42.so"
# shellcheck disable=SC2086 # words
cp $backends "$out/pack/backends/"
# shellcheck disable=SC2086 # words
for f in "$program.bin" $backends; do
	"$(var LOADER)" --library-path "$(var LIBDIR)" --list "$f"
done | sed -n 's,.* => \(/[^ ]*\) .*,\1,p' | sort -u | xargs cp -Lt "$out/pack/lib"
cp -L "$(var LOADER)" "$out/pack/lib/ld.so"
cat >"$out/pack/kvmm-llama" <<'END'
#!/bin/sh
d=/tmp/llama
cmd=$1
shift
exec $d/lib/ld.so --library-path $d/lib $d/kvmm-llama.bin $cmd --ggml-backends $d/backends "$@"
END
chmod +x "$out/pack/kvmm-llama"
"$program" model "$out/pack/model.gguf" --layers 2 --embd 64 --vocab 200 >/dev/null
"$program" model "$out/pack/other.gguf" --layers 2 --embd 64 --vocab 200 --seed 2 >/dev/null
"$program" compare --model "$out/pack/model.gguf" --backend user --threads 1 --rounds 1 \
	--context 384 --block-tokens 32 --slots 2 --conversations 5 --turns 3 --prompts 2 \
	--prompt-tokens 100 --user-tokens 50 --predict 8 --record "$out/pack/requests" >/dev/null
# A tar file: run.sh would look for the libraries that programs need on this system.
tar -cf "$out/llama.tar" -C "$out/pack" .
