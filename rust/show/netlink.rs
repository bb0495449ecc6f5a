// SPDX-License-Identifier: GPL-2.0

//! The generic netlink family, which tells programs about the module, its counters, its sockets and
//! events.

use kernel::prelude::*;

use super::sockets::Sockets;
use super::stand_ins::StandIns;
use crate::inet::addr::Addr;
use crate::inet::genl::{
    dump_op,
    get_op,
    rejected,
    Dump,
    DumpBuffer,
    Family,
    Get,
    Message,
    Ops,
    Policy,
    Request, //
};
use crate::proto::hello;
use crate::proto::state::{
    Event,
    State, //
};
use crate::sdp::cm::features::FEATURES;
use crate::sdp::conn::guard::SockGuard;
use crate::sdp::conn::transition::TellOfState;
use crate::uapi::nl;

static FAMILY: Family = Family::new();

static OPS: Ops<4> = Ops([
    get_op::<Module>(),
    dump_op::<Sockets>(),
    dump_op::<Counters>(),
    dump_op::<StandIns>(),
]);

// The public numbers are the module's own.
const _: () = {
    use crate::proto::hello::Features;
    // All states before Released are shown.
    assert!(nl::STATES.len() == State::Released.index());
    assert!(nl::feature::ORDERED == Features::ORDERED.bits());
    assert!(nl::feature::REMOTE_INVALIDATE == Features::REMOTE_INV.bits());
    assert!(nl::feature::SINK == Features::SINK.bits());
    assert!(nl::feature::SOURCE == Features::SOURCE.bits());
    assert!(nl::feature::SHRINK == Features::SHRINK.bits());
};

/// Registers the family.
///
/// # Errors
///
/// `EEXIST`, `ENOMEM`.
///
/// # Safety
///
/// Called once, when the module loads, after the namespaces and before the first socket.
pub(crate) unsafe fn register() -> Result {
    // SAFETY: As the caller promises.
    unsafe { FAMILY.register(nl::FAMILY, nl::EVENTS, nl::VERSION.into(), &OPS) }
}

/// Unregisters the family, after the last socket.
pub(crate) fn unregister() {
    FAMILY.unregister();
}

struct Module;

impl Get for Module {
    const CMD: u8 = nl::CMD_MODULE_GET;

    fn get(request: &Request<'_>, out: &mut Message<'_>) -> Result {
        let net = request.net();
        out.put_u8(nl::module::PROTOCOL, hello::VERSION)?;
        out.put_u32(nl::module::FEATURES, FEATURES.bits())?;
        out.put_uint(nl::module::NETNS_COOKIE, net.cookie())?;
        out.put_uint(nl::module::COUNTERS_SINCE, net.counters_since_ns())
    }
}

struct Counters;

impl Dump for Counters {
    const CMD: u8 = nl::CMD_STAT_GET;
    const POLICY: &'static [Policy] = &[rejected(), rejected()];
    /// The size of a counter's message, rounded up.
    const MESSAGE_BYTES: usize = 256;
    type Cursor = usize;

    fn check(_request: &Request<'_>) -> Result {
        Ok(())
    }

    fn dump(request: &Request<'_>, cursor: &mut usize, out: &mut DumpBuffer<'_>) -> Result {
        let mut index = 0;
        let mut result = Ok(());
        request.net().stats().for_each(|group, name, n| {
            if index == *cursor && result.is_ok() {
                result = write_counter(out, &[group, name], n);
                *cursor += usize::from(result.is_ok());
            }
            index += 1;
        });
        result
    }
}

fn write_counter(out: &mut DumpBuffer<'_>, name: &[&str], n: u64) -> Result {
    let mut message = out.next()?;
    put_counter(&mut message, name, n)?;
    message.end();
    Ok(())
}

/// Writes a counter, whose name is given in parts.
pub(super) fn put_counter(out: &mut Message<'_>, name: &[&str], n: u64) -> Result {
    out.put_str(nl::stat::NAME, name)?;
    out.put_uint(nl::stat::VALUE, n)
}

/// Writes an address and its port.
pub(super) fn put_addr(
    out: &mut Message<'_>,
    addr: &Addr,
    v6: bool,
    numbers: (u16, u16),
) -> Result {
    match addr.as_v4() {
        Some(ip) if !v6 => out.put(numbers.0, &ip)?,
        // The wildcard of both families.
        None if !v6 => out.put(numbers.0, &[0; 4])?,
        _ => out.put(numbers.0, &addr.ip)?,
    }
    out.put_u16(numbers.1, addr.port)
}

impl TellOfState for SockGuard<'_> {
    /// Costs one check if nobody listens.
    fn tell_of_state(&mut self, old: State, event: Event, why: Option<Error>) {
        let new = self.conn().state;
        let cmd = match (old, new) {
            (State::HelloSent | State::HelloReceived, State::Established) => {
                nl::CMD_ESTABLISHED_NTF
            }
            (State::Draining, State::Released) => nl::CMD_CLOSED_NTF,
            (State::Closed | State::Listen, State::Dead) => return,
            (_, State::Dead) => nl::CMD_FAILED_NTF,
            _ => return,
        };
        let sk = self.sk();
        let net = sk.net();
        if !FAMILY.has_listeners(net) {
            return;
        }
        let (peer, lifetime) = (self.conn().names.peer, &self.conn().lifetime);
        let (refusal, fell_back) = (lifetime.refusal, lifetime.fell_back.is_some());
        FAMILY.notify(net, cmd, |out| {
            let v6 = sk.is_v6();
            use nl::sock as a;
            out.put_u16(a::FAMILY, sk.family())?;
            out.put_u8(a::STATE, new.shown() as u8)?;
            put_addr(out, &sk.bound_addr(), v6, (a::LOCAL_ADDR, a::LOCAL_PORT))?;
            put_addr(out, &peer, v6, (a::PEER_ADDR, a::PEER_PORT))?;
            out.put_uint(a::INODE, sk.inode())?;
            out.put_uint(a::COOKIE, sk.cookie())?;
            out.put_uint(a::NETNS_COOKIE, net.cookie())?;
            if cmd == nl::CMD_FAILED_NTF {
                if let Some(why) = why {
                    out.put_u32(a::ERROR, why.to_errno().unsigned_abs())?;
                }
                out.put_str(a::CAUSE, &[event.name()])?;
                if let Some(refusal) = refusal {
                    out.put_str(a::REFUSAL, &[refusal.name()])?;
                }
                if fell_back {
                    out.put_u32(a::OPTIONS, nl::option::TCP_FALLBACK)?;
                }
            }
            Ok(())
        });
    }
}
