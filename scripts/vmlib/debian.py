# SPDX-License-Identifier: GPL-2.0
"""The Debian root with servers that machines have on a disk (scripts/programs)."""

import contextlib
import shlex
from collections.abc import Iterator

from .bench import Bench, Failure, wait_for
from .machine import Job, Vm, VmError

ROOT = "/debian"
# What starts a program whose sockets of TCP shall be sockets of SDP.
RUN = "sdpctl run --require --"
# Seconds, for an emulated processor that has a processor of the host to itself.
LONG = 120
# Commands that print the listeners of a port.
LISTENERS_OF_SDP = "sdpctl ss -lH --sport {}"
LISTENERS_OF_TCP = "ss -ltnH sport = :{}"
# Of an FTP server that lets everybody read /tmp/ftp, and write to its folder `in`.
VSFTPD = """listen=YES
listen_ipv6=NO
listen_port={port}
background=NO
anonymous_enable=YES
no_anon_password=YES
anon_root=/tmp/ftp
anon_upload_enable=YES
anon_umask=022
write_enable=YES
pasv_min_port=30000
pasv_max_port=30100
secure_chroot_dir=/tmp/empty
"""

# What is written goes to memory. Programs in there use the machine's devices, its sdpctl and its libsdp.so.
_MOUNT = f"""set -e
mkdir -p /run/disk /run/written {ROOT}
for m in virtio_blk erofs overlay; do modprobe $m; done
i=0; until [ -e /dev/vda ]; do sleep 0.1; i=$((i + 1)); [ $i -lt 100 ]; done
mount -t erofs -o ro /dev/vda /run/disk
mount -t tmpfs -o size=75% tmpfs /run/written
mkdir /run/written/upper /run/written/work
mount -t overlay -o lowerdir=/run/disk,upperdir=/run/written/upper,workdir=/run/written/work overlay {ROOT}
for folder in proc sys dev; do mount --rbind /$folder {ROOT}/$folder; done
for folder in tmp run; do mount -t tmpfs -o mode=1777 tmpfs {ROOT}/$folder; done
mkdir -p {ROOT}/var/log {ROOT}/var/cache {ROOT}/var/tmp {ROOT}/usr/lib/sdpctl
chmod 1777 {ROOT}/var/tmp
cp /usr/bin/sdpctl {ROOT}/usr/bin/
cp /usr/lib/sdpctl/libsdp.so {ROOT}/usr/lib/sdpctl/
cp /etc/hosts {ROOT}/etc/
cp /usr/bin/hello {ROOT}/usr/bin/
"""


def mount(vm: Vm) -> None:
    """Mounts the root at ROOT of a machine, if it is not there yet."""
    if not vm.has_disk:
        raise VmError(f"{vm.name} has no disk with programs")
    vm.check(f"[ -e {ROOT}/proc/self ] || {{ {_MOUNT} }}")


def kill_all(vm: Vm) -> None:
    """Kills what runs in that root."""
    vm.run(f"for p in /proc/[0-9]*; do [ x$(readlink $p/root) != x{ROOT} ] || kill -KILL ${{p#/proc/}}; done")


def inside(command: str) -> str:
    """A shell's words that become a command of that root."""
    return f"exec chroot {ROOT} /usr/bin/env PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root {command}"


def spawn(vm: Vm, command: str, door: str = RUN) -> Job:
    """Starts a program of the root; `door` is the command that decides what its sockets are."""
    mount(vm)
    return vm.spawn(inside(f"{door} {command}"))


def run(bench: Bench, vm: Vm, command: str, door: str = RUN, seconds: float = LONG) -> str:
    """Runs a program of the root, which must succeed; returns the program's output."""
    return bench.succeed(spawn(vm, command, door), seconds)


def shell(bench: Bench, vm: Vm, script: str, seconds: float = LONG) -> str:
    """Runs a shell's script in the root; returns the script's output."""
    return run(bench, vm, f"sh -euc {shlex.quote(script)}", "", seconds)


@contextlib.contextmanager
def serving(bench: Bench, vm: Vm, command: str, port: int, door: str = RUN,
            listeners: str = LISTENERS_OF_SDP) -> Iterator[Job]:
    """Runs a server of the root for the length of the block, which begins when the server listens."""
    job = spawn(vm, command, door)

    def listens() -> bool:
        if job.ended.is_set():
            raise Failure(f"`{command}` ended with {job.status}:\n{job.output}")
        return vm.run(f"{listeners.format(port)} | grep -q .").ok
    try:
        wait_for(listens, bench.limit(LONG), job)
        yield job
    finally:
        job.kill()
        job.wait(bench.limit(20))


def write(vm: Vm, path: str, text: str) -> None:
    """Writes a file of the root."""
    mount(vm)
    vm.check(f"cat >{ROOT}{path} <<'END'\n{text}\nEND")
