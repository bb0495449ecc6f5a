// SPDX-License-Identifier: GPL-2.0

//! The BPF program of a rule as instructions
//! (`Documentation/bpf/standardization/instruction-set.rst` of the kernel). It is too short to be
//! worth a compiler.

use uapi::socket::IPPROTO_SDP;

use super::kernel::{
    Cgroup,
    Instruction,
    Task, //
};

const LOAD_64: u8 = 0x79;
const LOAD_IMMEDIATE_64: u8 = 0x18;
const MOVE: u8 = 0xbf;
const MOVE_IMMEDIATE: u8 = 0xb7;
const ADD_IMMEDIATE: u8 = 0x07;
const AND_IMMEDIATE_32: u8 = 0x54;
const JUMP_IF_EQUAL_32: u8 = 0x16;
const JUMP_UNLESS_EQUAL_32: u8 = 0x56;
const JUMP_UNLESS_SAME_64: u8 = 0x5d;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// Kernel helpers (`include/uapi/linux/bpf.h`).
const PROBE_READ_KERNEL: i32 = 113;
const GET_CURRENT_ANCESTOR_CGROUP_ID: i32 = 123;
const GET_CURRENT_TASK_BTF: i32 = 158;

/// The frame pointer, and a callee-saved register.
const FRAME: u8 = 10;
const CONTEXT: u8 = 6;

/// `SOCK_TYPE_MASK`: the other bits are flags.
const TYPE_MASK: i32 = 0xf;
/// `TASK_COMM_LEN`.
const NAME_BYTES: i32 = 16;

#[derive(Default)]
struct Code {
    instructions: Vec<Instruction>,
    /// Jumps to the end for processes that the rule does not match.
    misses: Vec<usize>,
}

impl Code {
    fn push(&mut self, opcode: u8, to: u8, from: u8, offset: i16, value: i32) {
        self.instructions.push(Instruction {
            opcode,
            registers: to | (from << 4),
            offset,
            value,
        });
    }

    /// Loads an argument of `update_socket_protocol(family, type, protocol)`.
    fn load_argument(&mut self, to: u8, number: i16) {
        self.push(LOAD_64, to, CONTEXT, number * 8, 0);
    }

    /// Loads a 64-bit value.
    fn load_value(&mut self, to: u8, value: u64) {
        self.push(LOAD_IMMEDIATE_64, to, 0, 0, value as u32 as i32);
        self.push(0, 0, 0, 0, (value >> 32) as u32 as i32);
    }

    /// Continues if the lower half of the register is one of the values; otherwise the rule does
    /// not match.
    fn one_of(&mut self, register: u8, values: &[i32]) {
        let (last, others) = values.split_last().expect("there are values");
        for (i, value) in others.iter().enumerate() {
            let behind = (others.len() - i) as i16;
            self.push(JUMP_IF_EQUAL_32, register, 0, behind, *value);
        }
        self.miss(JUMP_UNLESS_EQUAL_32, register, 0, *last);
    }

    /// Continues if both registers are equal.
    fn same(&mut self, one: u8, other: u8) {
        self.miss(JUMP_UNLESS_SAME_64, one, other, 0);
    }

    fn miss(&mut self, opcode: u8, to: u8, from: u8, value: i32) {
        self.misses.push(self.instructions.len());
        self.push(opcode, to, from, 0, value);
    }

    /// Returns a result; 0 lets the kernel's function decide.
    fn end(&mut self, result: i32) {
        self.push(MOVE_IMMEDIATE, 0, 0, 0, result);
        self.push(EXIT, 0, 0, 0, 0);
    }

    fn finish(mut self) -> Vec<Instruction> {
        self.end(IPPROTO_SDP);
        let target = self.instructions.len();
        for &jump in &self.misses {
            // An offset is relative to the instruction after the jump.
            self.instructions[jump].offset = (target - jump - 1) as i16;
        }
        self.end(0);
        self.instructions
    }
}

/// The program for TCP sockets of processes in the control group and with the name.
pub(super) fn program(name: Option<&str>, cgroup: Option<Cgroup>, task: &Task) -> Vec<Instruction> {
    let mut code = Code::default();
    code.push(MOVE, CONTEXT, 1, 0, 0);
    code.load_argument(1, 0);
    code.one_of(1, &[libc::AF_INET, libc::AF_INET6]);
    code.load_argument(1, 1);
    code.push(AND_IMMEDIATE_32, 1, 0, 0, TYPE_MASK);
    code.one_of(1, &[libc::SOCK_STREAM]);
    code.load_argument(1, 2);
    // Servers in Go request MPTCP and fall back to TCP.
    code.one_of(1, &[0, libc::IPPROTO_TCP, libc::IPPROTO_MPTCP]);
    if let Some(Cgroup { level, id }) = cgroup {
        code.push(MOVE_IMMEDIATE, 1, 0, 0, level);
        code.push(CALL, 0, 0, 0, GET_CURRENT_ANCESTOR_CGROUP_ID);
        code.load_value(1, id);
        code.same(0, 1);
    }
    if let Some(name) = name {
        // Threads have their own names; the program's name is that of the main thread.
        code.push(CALL, 0, 0, 0, GET_CURRENT_TASK_BTF);
        code.push(LOAD_64, 3, 0, task.group_leader, 0);
        code.push(ADD_IMMEDIATE, 3, 0, 0, task.comm);
        code.push(MOVE, 1, FRAME, 0, 0);
        code.push(ADD_IMMEDIATE, 1, 0, 0, -NAME_BYTES);
        code.push(MOVE_IMMEDIATE, 2, 0, 0, NAME_BYTES);
        code.push(CALL, 0, 0, 0, PROBE_READ_KERNEL);
        code.one_of(0, &[0]);
        // The kernel truncates longer names and terminates them with a zero.
        let mut bytes = [0; NAME_BYTES as usize];
        let known = name.bytes().take(bytes.len() - 1);
        bytes
            .iter_mut()
            .zip(known)
            .for_each(|(to, from)| *to = from);
        for (i, word) in bytes.chunks_exact(8).enumerate() {
            let word = word.try_into().expect("eight bytes");
            code.push(LOAD_64, 1, FRAME, i as i16 * 8 - NAME_BYTES as i16, 0);
            code.load_value(2, u64::from_ne_bytes(word));
            code.same(1, 2);
        }
    }
    code.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: Task = Task {
        group_leader: 0x100,
        comm: 0x200,
    };

    /// Addresses of the current task and its group leader.
    const CURRENT: u64 = 0x1_0000;
    const LEADER: u64 = 0x2_0000;

    /// Runs the program for a call of a process with these results of the helpers.
    fn run(program: &[Instruction], call: [i32; 3], ancestor: u64, name: &str) -> i32 {
        let mut registers = [0_u64; 11];
        let mut frame = [0_u8; NAME_BYTES as usize];
        let mut at = 0;
        loop {
            let Instruction {
                opcode,
                registers: both,
                offset,
                value,
            } = program[at];
            let (to, from) = (usize::from(both & 0xf), usize::from(both >> 4));
            at += 1;
            // The frame ends at 0.
            let jump = |holds: bool| if holds { offset as usize } else { 0 };
            match opcode {
                LOAD_64 if from == usize::from(CONTEXT) => {
                    // The upper half of an argument is undefined.
                    registers[to] = 0xdead_0000_0000 | u64::from(call[offset as usize / 8] as u32);
                }
                LOAD_64 if from == usize::from(FRAME) => {
                    let start = (offset + NAME_BYTES as i16) as usize;
                    let word = frame[start..start + 8].try_into().expect("eight bytes");
                    registers[to] = u64::from_ne_bytes(word);
                }
                LOAD_64 => {
                    assert_eq!((registers[from], offset), (CURRENT, TASK.group_leader));
                    registers[to] = LEADER;
                }
                LOAD_IMMEDIATE_64 => {
                    registers[to] = u64::from(value as u32) | ((program[at].value as u64) << 32);
                    at += 1;
                }
                MOVE => registers[to] = registers[from],
                MOVE_IMMEDIATE => registers[to] = value as u64,
                ADD_IMMEDIATE => registers[to] = registers[to].wrapping_add(value as u64),
                AND_IMMEDIATE_32 => registers[to] &= u64::from(value as u32),
                JUMP_IF_EQUAL_32 => at += jump(registers[to] as i32 == value),
                JUMP_UNLESS_EQUAL_32 => at += jump(registers[to] as i32 != value),
                JUMP_UNLESS_SAME_64 => at += jump(registers[to] != registers[from]),
                CALL => {
                    registers[0] = match value {
                        PROBE_READ_KERNEL => {
                            let to = (-i64::from(NAME_BYTES)) as u64;
                            let from = LEADER + TASK.comm as u64;
                            assert_eq!(registers[1..=3], [to, NAME_BYTES as u64, from]);
                            frame[..name.len()].copy_from_slice(name.as_bytes());
                            0
                        }
                        GET_CURRENT_ANCESTOR_CGROUP_ID => ancestor,
                        GET_CURRENT_TASK_BTF => CURRENT,
                        other => panic!("helper {other}"),
                    };
                    // The contents are undefined after a call.
                    registers[1..=5].fill(u64::MAX);
                }
                EXIT => return registers[0] as i32,
                other => panic!("opcode {other:#x}"),
            }
        }
    }

    #[test]
    fn takes_tcp_sockets_and_no_others() {
        let all = program(None, None, &TASK);
        for family in [libc::AF_INET, libc::AF_INET6] {
            for flags in [0, libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC] {
                for protocol in [0, libc::IPPROTO_TCP, libc::IPPROTO_MPTCP] {
                    let call = [family, libc::SOCK_STREAM | flags, protocol];
                    assert_eq!(run(&all, call, 0, ""), IPPROTO_SDP);
                }
            }
        }
        for call in [
            [libc::AF_UNIX, libc::SOCK_STREAM, 0],
            [27, libc::SOCK_STREAM, 0],
            [libc::AF_INET, libc::SOCK_DGRAM, 0],
            [libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_TCP],
            [libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_SCTP],
            [libc::AF_INET6, libc::SOCK_STREAM, IPPROTO_SDP],
        ] {
            assert_eq!(run(&all, call, 0, ""), 0, "{call:?}");
        }
    }

    #[test]
    fn asks_for_each_condition() {
        let call = [libc::AF_INET, libc::SOCK_STREAM, 0];
        let id = 0x1234_5678_9abc_def0;
        let group = Some(Cgroup { level: 3, id });
        let long = program(Some("1234567890123456"), group, &TASK);
        assert_eq!(run(&long, call, id, "123456789012345"), IPPROTO_SDP);
        for name in ["x", "iperf3", "123456789012345"] {
            let both = program(Some(name), group, &TASK);
            assert_eq!(run(&both, call, id, name), IPPROTO_SDP);
            assert_eq!(run(&both, call, id + 1, name), 0);
            assert_eq!(run(&both, call, id ^ (1 << 40), name), 0);
            for other in ["", "y", "iperf", "iperf30", "12345678901234"] {
                assert_eq!(run(&both, call, id, other), 0, "{other}");
            }
            assert_eq!(
                run(&both, [libc::AF_UNIX, libc::SOCK_STREAM, 0], id, name),
                0
            );
        }
    }
}
