#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Find out what the kernel at KDIR offers by compiling small files, and write
# what was found as a header.  Versions say little: distributions backport.
set -eu

if [ $# -ne 3 ]; then
	echo "usage: probe.sh KDIR WORKDIR HEADER" >&2
	exit 2
fi
kdir=$1
work=$2
header=$3

rm -rf "$work"
mkdir -p "$work"
names=

# probe NAME: the program on stdin compiles
probe()
{
	names="$names $1"
	{
		cat
		echo 'MODULE_LICENSE("GPL");'
	} >"$work/$1.c"
}

# compiles everywhere, or something else is wrong
probe MODULE_H <<'C'
#include <linux/module.h>
C

probe VM_FLAGS_SET <<'C'
#include <linux/mm.h>
#include <linux/module.h>
void probe(struct vm_area_struct *vma);
void probe(struct vm_area_struct *vma) { vm_flags_set(vma, VM_DONTDUMP); }
C

probe IO_URING_CMD_H <<'C'
#include <linux/io_uring/cmd.h>
#include <linux/module.h>
C

probe IO_URING_CMD_SQE <<'C'
#include <linux/io_uring/cmd.h>
#include <linux/module.h>
const void *probe(struct io_uring_cmd *cmd);
const void *probe(struct io_uring_cmd *cmd) { return cmd->sqe->cmd; }
C

probe IO_URING_CMD_DONE3 <<'C'
#include <linux/io_uring/cmd.h>
#include <linux/module.h>
void probe(struct io_uring_cmd *cmd);
void probe(struct io_uring_cmd *cmd) { io_uring_cmd_done(cmd, 0, 0); }
C

probe IO_TW_REQ <<'C'
#include <linux/io_uring/cmd.h>
#include <linux/module.h>
struct io_uring_cmd *probe(struct io_tw_req req);
struct io_uring_cmd *probe(struct io_tw_req req)
{
	return io_uring_cmd_from_tw(req);
}
C

probe WRITE_BEGIN_FOLIO <<'C'
#include <linux/fs.h>
#include <linux/module.h>
int probe(struct file *file, struct folio **folio);
int probe(struct file *file, struct folio **folio)
{
	return file->f_mapping->a_ops->write_begin(file, file->f_mapping, 0, 1,
						   folio, NULL);
}
C

probe WRITE_BEGIN_KIOCB <<'C'
#include <linux/fs.h>
#include <linux/module.h>
int probe(struct kiocb *iocb, struct address_space *mapping,
	  struct folio **folio);
int probe(struct kiocb *iocb, struct address_space *mapping,
	  struct folio **folio)
{
	return mapping->a_ops->write_begin(iocb, mapping, 0, 1, folio, NULL);
}
C

probe SHMEM_VMA_FLAGS <<'C'
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/shmem_fs.h>
struct file *probe(struct vfsmount *mnt);
struct file *probe(struct vfsmount *mnt)
{
	return shmem_file_setup_with_mnt(mnt, "", 0,
					 mk_vma_flags(VMA_NORESERVE_BIT));
}
C

probe BDEV_FILE <<'C'
#include <linux/blkdev.h>
#include <linux/module.h>
struct file *probe(dev_t dev, void *holder);
struct file *probe(dev_t dev, void *holder)
{
	bdev_fput(holder);
	return bdev_file_open_by_dev(dev, BLK_OPEN_READ | BLK_OPEN_WRITE,
				     holder, NULL);
}
C

probe CRC32C_H <<'C'
#include <linux/crc32c.h>
#include <linux/module.h>
C

probe VFS_MMAP <<'C'
#include <linux/fs.h>
#include <linux/module.h>
int probe(struct file *file, struct vm_area_struct *vma);
int probe(struct file *file, struct vm_area_struct *vma)
{
	return vfs_mmap(file, vma);
}
C

# a string would compile there, too
probe IMPORT_NS_TOKEN <<'C'
#include <linux/module.h>
MODULE_IMPORT_NS(DMA_BUF);
C

probe REMOVE_FOLIO <<'C'
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pagemap.h>
int probe(struct address_space *mapping, struct folio *folio);
int probe(struct address_space *mapping, struct folio *folio)
{
	return generic_error_remove_folio(mapping, folio);
}
C

probe WQ_PERCPU <<'C'
#include <linux/module.h>
#include <linux/workqueue.h>
unsigned int probe(void);
unsigned int probe(void) { return WQ_PERCPU; }
C

probe SHRINKER_ALLOC <<'C'
#include <linux/module.h>
#include <linux/shrinker.h>
struct shrinker *probe(void);
struct shrinker *probe(void) { return shrinker_alloc(0, "probe"); }
C

for n in $names; do
	echo "obj-m += $n.o"
done >"$work/Kbuild"
echo 'ccflags-y += -Werror=implicit-function-declaration' >>"$work/Kbuild"
echo 'ccflags-y += -Werror=incompatible-pointer-types' >>"$work/Kbuild"

# Compiled, not linked.  May be called by a kernel build, whose variables are not
# meant for this one.
targets=
for n in $names; do
	targets="$targets $n.o"
done
# shellcheck disable=SC2086 # a list of words
env -i PATH="$PATH" HOME="${HOME-/}" LC_ALL=C ${ARCH:+ARCH="$ARCH"} \
	${CROSS_COMPILE:+CROSS_COMPILE="$CROSS_COMPILE"} ${LLVM:+LLVM="$LLVM"} \
	make -k -C "$kdir" M="$work" $targets >"$work/log" 2>&1 || :

if ! [ -e "$work/MODULE_H.o" ]; then
	cat "$work/log" >&2
	echo "probe.sh: can't compile for $kdir" >&2
	exit 1
fi

# exported NAME: modules can link it.  Without a list of symbols (a kernel that is
# being built along) nobody can tell, and what is left out then is not missed.
exported()
{
	grep -q "[[:blank:]]$1[[:blank:]]" "$kdir/Module.symvers" 2>/dev/null
}

{
	echo '/* SPDX-License-Identifier: GPL-2.0 */'
	echo '/* Made by kmod/compat/probe.sh. */'
	for n in $names; do
		if [ -e "$work/$n.o" ]; then
			echo "#define KVMM_HAVE_$n 1"
		fi
	done
	if exported get_mem_cgroup_from_mm; then
		echo '#define KVMM_HAVE_GET_MEM_CGROUP_FROM_MM 1'
	fi
} >"$header.tmp"
mv "$header.tmp" "$header"
