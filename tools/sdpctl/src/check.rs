// SPDX-License-Identifier: GPL-2.0

//! `sdpctl check`: checks everything from the module to the peer, and suggests repairs.

use std::fs;
use std::io;
use std::net::{
    IpAddr,
    SocketAddr,
    ToSocketAddrs,
    UdpSocket, //
};
use std::process::ExitCode;

use serde::Serialize;
use uapi::socket::AF_INET_SDP;

use crate::cli::{
    CheckArgs,
    Cli, //
};
use crate::dev;
use crate::fail::Fail;
use crate::limits::Limit;
use crate::model;
use crate::netlink::Module;
use crate::out;
use crate::sdp;
use crate::tcp;
use crate::units;

/// Limit of locked memory below which sends without a copy often fall back to copies.
const MEMLOCK_BYTES: u64 = 8 << 20;

#[derive(Copy, Clone, Debug, Serialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    Warning,
    Failed,
}

#[derive(Debug, Serialize)]
struct Step {
    name: &'static str,
    status: Status,
    found: String,
    /// How to repair it.
    advice: Option<String>,
}

#[derive(Serialize)]
struct Report {
    format: u32,
    result: Status,
    steps: Vec<Step>,
}

fn ok(name: &'static str, found: impl Into<String>) -> Step {
    Step {
        name,
        status: Status::Ok,
        found: found.into(),
        advice: None,
    }
}

fn bad(
    name: &'static str,
    status: Status,
    found: impl Into<String>,
    advice: impl Into<String>,
) -> Step {
    Step {
        name,
        status,
        found: found.into(),
        advice: Some(advice.into()),
    }
}

pub(crate) fn run(cli: &Cli, args: &CheckArgs) -> Result<ExitCode, Fail> {
    let mut steps = Vec::new();
    let code = walk(cli, args, &mut steps);
    let result = steps.iter().map(|s| s.status).max().unwrap_or(Status::Ok);
    if cli.json {
        let format = out::FORMAT;
        out::json(&Report {
            format,
            result,
            steps,
        })?;
    } else {
        print(cli, &steps)?;
    }
    Ok(match (code, result) {
        (Some(code), _) => code,
        (None, Status::Failed) => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}

/// The steps that need no peer.
pub(crate) fn here(cli: &Cli) -> impl Serialize {
    let args = CheckArgs {
        peer: None,
        timeout: 1.0,
    };
    let mut steps = Vec::new();
    walk(cli, &args, &mut steps);
    steps
}

/// Runs the steps as far as they make sense; returns an exit status other than the usual one if a
/// step has one.
fn walk(cli: &Cli, args: &CheckArgs, steps: &mut Vec<Step>) -> Option<ExitCode> {
    if let Err((step, code)) = module(cli).map(|step| steps.push(step)) {
        steps.push(step);
        return Some(code);
    }
    let devices = dev::here();
    let ports: Vec<&dev::Port> = devices.iter().flat_map(|d| &d.ports).collect();
    steps.push(device(&devices));
    if !devices.is_empty() {
        steps.push(gid(&ports));
    }
    match permission() {
        Ok(step) => steps.push(step),
        Err((step, code)) => {
            steps.push(step);
            return code;
        }
    }
    steps.extend(limits());
    steps.extend(capacity(&crate::limits::read(None)));
    if let Some(peer) = &args.peer {
        match resolve(peer) {
            Ok(addrs) => {
                let list: Vec<String> = addrs.iter().map(SocketAddr::to_string).collect();
                steps.push(ok("address", list.join(", ")));
                steps.extend(try_all(&addrs, |addr| {
                    (route(addr, &ports), connect(addr, args.timeout, &devices))
                }));
            }
            Err(step) => steps.push(step),
        }
    }
    None
}

fn module(cli: &Cli) -> Result<Step, (Step, ExitCode)> {
    let about = Module::open(&cli.messages).and_then(|mut module| model::about(&mut module));
    match about {
        Ok(about) => {
            let features = about.features.join(", ");
            Ok(ok(
                "module",
                format!("loaded, protocol {}, {features}", about.protocol),
            ))
        }
        Err(fail) => {
            let advice = match fail {
                Fail::NotLoaded | Fail::Unloaded => {
                    "`modprobe ib_sdp`; if it is not found, `make install` there first"
                }
                Fail::TooOld => "`rmmod ib_sdp`, `make install`, `modprobe ib_sdp`",
                _ => "try it as root",
            };
            let code = fail.code();
            Err((
                bad("module", Status::Failed, fail.to_string(), advice),
                code,
            ))
        }
    }
}

fn device(devices: &[dev::Device]) -> Step {
    let names: Vec<&str> = devices.iter().map(|d| d.name.as_str()).collect();
    match names.is_empty() {
        true => bad("device", Status::Failed, "no RDMA device", dev::NO_DEVICE),
        false => ok("device", names.join(", ")),
    }
}

fn gid(ports: &[&dev::Port]) -> Step {
    let usable: Vec<String> = ports
        .iter()
        .filter(|p| p.usable)
        .flat_map(|p| p.gids.iter().map(|g| g.ip().to_string()))
        .collect();
    if !usable.is_empty() {
        return ok("gid", usable.join(", "));
    }
    let reasons: Vec<&str> = ports.iter().filter_map(|p| p.reason.as_deref()).collect();
    bad(
        "gid",
        Status::Failed,
        "no port can be used",
        reasons.join("; "),
    )
}

fn permission() -> Result<Step, (Step, Option<ExitCode>)> {
    match sdp::open(AF_INET_SDP, 0) {
        Ok(_) => Ok(ok("permission", "sockets of family 27 can be opened")),
        Err(e) => {
            let denied = e.kind() == io::ErrorKind::PermissionDenied;
            let advice = match denied {
                true => "a security module or a seccomp filter forbids it to this user",
                false => "look into the kernel's log",
            };
            let found = format!("no socket of family 27: {e}");
            let code = denied.then(|| Fail::Permission(String::new()).code());
            Err((bad("permission", Status::Failed, found, advice), code))
        }
    }
}

fn limit(resource: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: The result is written to `limit`.
    let got = unsafe { libc::getrlimit(resource, &raw mut limit) };
    (got == 0).then_some(limit.rlim_cur)
}

/// The capability to lock any amount of memory: its bit in /proc/self/status.
const CAP_IPC_LOCK: u32 = 14;
/// The initial user namespace: its inode number is part of the kernel's interface.
const FIRST_USER_NAMESPACE: &str = "user:[4026531837]";

/// Whether the limit of locked memory does not apply to this process: the module checks the
/// capability in the initial user namespace, as the kernel does for all pinned pages.
fn may_lock_all() -> bool {
    let is_first = match fs::read_link("/proc/self/ns/user") {
        Ok(name) => name.as_os_str() == FIRST_USER_NAMESPACE,
        // The kernel has no user namespaces.
        Err(e) => e.kind() == io::ErrorKind::NotFound,
    };
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let caps = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let caps = caps.and_then(|caps| u64::from_str_radix(caps.trim(), 16).ok());
    is_first && caps.is_some_and(|caps| caps & (1 << CAP_IPC_LOCK) != 0)
}

fn limits() -> Option<Step> {
    let memlock = match may_lock_all() {
        true => libc::RLIM_INFINITY,
        false => limit(libc::RLIMIT_MEMLOCK)?,
    };
    let files = limit(libc::RLIMIT_NOFILE)?;
    let found = match memlock {
        libc::RLIM_INFINITY => format!("any memory may be locked, {files} files"),
        bytes => format!(
            "{} of memory may be locked, {files} files",
            units::bytes(bytes)
        ),
    };
    Some(match memlock {
        enough if enough >= MEMLOCK_BYTES => ok("limits", found),
        _ => bad(
            "limits",
            Status::Warning,
            found,
            "sends without a copy may go by copy: raise `ulimit -l`, or memlock in \
             /etc/security/limits.conf",
        ),
    })
}

/// The numbers of connections, and a warning if one of the limits is reached.
fn capacity(limits: &[Limit]) -> Option<Step> {
    let found: Vec<String> = limits
        .iter()
        .map(|l| format!("{} {} of {}", l.name, l.in_use, l.most))
        .collect();
    let found = found.join(", ");
    let full = limits.iter().find(|l| l.in_use >= l.most);
    let name = "capacity";
    Some(match full.map(|l| l.name.as_str()) {
        None if limits.is_empty() => return None,
        None => ok(name, found),
        Some("max_orphans") => bad(
            name,
            Status::Warning,
            found,
            "close() aborts connections whose bytes the peer has not taken yet: \
             `sdpctl stat aborted_max_orphans` counts them; `sdpctl set max_orphans=NUMBER` allows more",
        ),
        Some(limit) => bad(
            name,
            Status::Warning,
            found,
            format!(
                "more connections are refused: `sdpctl stat refused_max` counts them; \
                 `sdpctl set {limit}=NUMBER` allows more"
            ),
        ),
    })
}

/// All addresses of the peer without duplicates.
fn resolve(peer: &str) -> Result<Vec<SocketAddr>, Step> {
    let failed = |why: String| {
        let advice = "write HOST:PORT, or [ADDRESS]:PORT for IPv6";
        Err(bad("address", Status::Failed, why, advice))
    };
    match sdp::with_numeric_scope(peer).and_then(|peer| peer.to_socket_addrs()) {
        Ok(found) => {
            let mut addrs = Vec::new();
            for addr in found.map(sdp::canonical) {
                if !addrs.contains(&addr) {
                    addrs.push(addr);
                }
            }
            match addrs.is_empty() {
                true => failed(format!("`{peer}` has no address")),
                false => Ok(addrs),
            }
        }
        Err(e) => failed(format!("`{peer}`: {e}")),
    }
}

/// Tries the addresses until a connection succeeds: the steps `route` and `peer` of that address,
/// or of the last one.
fn try_all(
    addrs: &[SocketAddr],
    mut try_one: impl FnMut(&SocketAddr) -> (Step, Step),
) -> Vec<Step> {
    let mut last = None;
    for addr in addrs {
        let (route, peer) = try_one(addr);
        if peer.status == Status::Ok {
            return vec![route, peer];
        }
        last = Some((route, peer));
    }
    let Some((route, mut peer)) = last else {
        return Vec::new();
    };
    if addrs.len() > 1 {
        peer.found += &format!(" (the last of {} addresses, all tried)", addrs.len());
    }
    vec![route, peer]
}

/// The local address for this destination, by the kernel's routes.
fn local_for(addr: &SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match addr {
        SocketAddr::V4(_) => IpAddr::from([0; 4]),
        SocketAddr::V6(_) => IpAddr::from([0; 16]),
    };
    let probe = UdpSocket::bind((any, 0))?;
    // This sends no packet.
    probe.connect(addr)?;
    Ok(probe.local_addr()?.ip().to_canonical())
}

/// Whether an interface of the port has an address over which connections to loopback addresses can
/// go. Only the GIDs of RoCE tell; with others the answer is yes.
fn has_address(port: &dev::Port) -> bool {
    let is_global = |ip| !matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    !port.roce || port.gids.iter().any(|gid| is_global(gid.ip()))
}

fn route(addr: &SocketAddr, ports: &[&dev::Port]) -> Step {
    let local = match local_for(addr) {
        Ok(local) => local,
        Err(e) => {
            let advice = format!("`ip route get {}` says more", addr.ip());
            return bad("route", Status::Failed, format!("no route: {e}"), advice);
        }
    };
    route_from(local, addr, ports)
}

fn route_from(local: IpAddr, addr: &SocketAddr, ports: &[&dev::Port]) -> Step {
    // A device that has no address in this namespace does not reach it, as `gid` says.
    if local.is_loopback() && !ports.iter().any(|p| p.usable && has_address(p)) {
        return bad(
            "route",
            Status::Failed,
            format!("from {local}, but no interface with an RDMA device has an address"),
            "connections to loopback addresses go over such an interface: give one an IPv4 address, \
             or an IPv6 address that is not a link-local one",
        );
    }
    // Every device reaches the machine itself.
    if local.is_loopback() || local == addr.ip() {
        return ok("route", format!("from {local}, within this machine"));
    }
    let mut usable = ports.iter().filter(|p| p.usable);
    let has_it = |p: &&&dev::Port| p.roce && p.gids.iter().any(|g| g.ip() == local);
    if let Some(port) = usable.clone().find(has_it) {
        let netdev = port.netdev.as_deref().unwrap_or("an RDMA port");
        return ok("route", format!("from {local} through {netdev}"));
    }
    if usable.any(|p| !p.roce) {
        return bad(
            "route",
            Status::Warning,
            format!("from {local}: cannot tell by the GIDs whether an RDMA device has it"),
            format!(
                "GIDs of InfiniBand and iWARP are no IP addresses: `ip route get {}` should name an \
                 interface of the device",
                addr.ip()
            ),
        );
    }
    bad(
        "route",
        Status::Failed,
        format!("from {local}, where there is no RDMA device"),
        "use an address of the peer that is reached through an interface with one (`sdpctl dev`)",
    )
}

fn connect(addr: &SocketAddr, timeout: f64, devices: &[dev::Device]) -> Step {
    let by_sdp = sdp::connect(addr, timeout).map(drop);
    peer(addr, by_sdp, tcp::probe(addr, devices))
}

/// The step for a server, by the result of a connection by SDP and by the answer of the TCP port.
/// The answer tells users of a TCP server why SDP does not reach it, and users of an SDP server why
/// TCP does not.
fn peer(addr: &SocketAddr, by_sdp: io::Result<()>, by_tcp: Option<tcp::Answer>) -> Step {
    use tcp::Answer::{
        Accepts,
        Refuses, //
    };
    let Err(e) = by_sdp else {
        let tcp = match by_tcp {
            Some(Accepts) => " and by TCP".to_string(),
            Some(Refuses) => format!("; {}", Refuses.show()),
            None => String::new(),
        };
        return ok("peer", format!("{addr} takes connections by SDP{tcp}"));
    };
    let tcp = by_tcp.map_or_else(String::new, |answer| format!("; {}", answer.show()));
    let advice = match (e.raw_os_error(), by_tcp) {
        (Some(libc::ECONNREFUSED), Some(Accepts)) => TCP_ONLY,
        _ => advice(&e),
    };
    bad("peer", Status::Failed, format!("{addr}: {e}{tcp}"), advice)
}

/// Advice if SDP is refused and TCP is not.
const TCP_ONLY: &str =
    "the server listens with TCP only: start the server with `sdpctl run` (with a `both` rule it \
     serves clients of both kinds), or let the client use TCP; or the server listens with both and \
     has refused for another reason: `sdpctl stat refused` there says why";

/// Advice for a failed connection. The counters mentioned are the peer's.
fn advice(e: &io::Error) -> &'static str {
    match e.raw_os_error() {
        Some(libc::ECONNREFUSED) => {
            "nobody listens there with SDP, or the peer has not loaded ib_sdp; \
             it may have refused for another reason, too (refused_bad_hello, refused_bad_address, refused_no_memory, \
             refused_max_connections, refused_max_user_connections, refused_mem): `sdpctl stat refused` there says why"
        }
        Some(libc::ENOBUFS) => {
            "this machine has as many connections, or as much memory in buffers, as it may: see \
             `sdpctl stat refused_max refused_mem` (refused_max_connections, refused_max_user_connections, refused_mem) and `sdpctl get mem max_connections max_user_connections` here"
        }
        Some(libc::ETIMEDOUT) => {
            "the peer does not answer by RDMA: `ping` it, and look at `sdpctl check` and `sdpctl dev` there; \
             a firewall must let UDP port 4791 pass for RoCE, and the TCP port of the listener for iWARP; \
             or the listener's queue is full, or connections that are not complete have reached max_connections or \
             max_user_connections there: `sdpctl stat request_waited dropped_backlog_full refused_max` there counts such requests"
        }
        Some(libc::ECONNRESET) => {
            "the peer has ended the connection while it was set up: with iWARP, whose ports are those of \
             TCP, another program than one of SDP may listen there"
        }
        Some(libc::EHOSTUNREACH | libc::ENETUNREACH) => {
            "the peer does not answer by RDMA: `ping` it, and look at `sdpctl check` and `sdpctl dev` there; \
             a firewall must let UDP port 4791 pass for RoCE"
        }
        Some(libc::EOPNOTSUPP) => {
            "the adapter cannot be used for SDP: `sdpctl dev`, called by root, and the kernel's log say why"
        }
        Some(libc::EPROTO) => "the peer speaks another version of the protocol: load the same module there",
        Some(libc::EADDRNOTAVAIL | libc::ENODEV) => "no RDMA device has the local address: see `route`",
        _ => "look into the kernel's log of both machines",
    }
}

fn print(cli: &Cli, steps: &[Step]) -> Result<(), Fail> {
    let on = out::is_coloured(cli.color);
    for step in steps {
        let (word, color) = match step.status {
            Status::Ok => ("ok", out::Color::Good),
            Status::Warning => ("warning", out::Color::Warning),
            Status::Failed => ("failed", out::Color::Bad),
        };
        let word = out::paint(&format!("{word:<7}"), color, on);
        out::line(format_args!("{word}  {:<10}  {}", step.name, step.found))?;
        if let Some(advice) = &step.advice {
            out::line(format_args!("                     {advice}"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wants_a_port() {
        for bad in [
            "",
            "10.0.0.1",
            "10.0.0.1:",
            ":1:2",
            "10.0.0.1:65536",
            "fe80::1%lo",
        ] {
            assert!(resolve(bad).is_err(), "{bad}");
        }
        for (peer, addr) in [
            ("10.0.0.1:5", "10.0.0.1:5"),
            ("[::1]:5", "[::1]:5"),
            ("[fe80::1%7]:5", "[fe80::1%7]:5"),
            ("[fe80::1%lo]:5", "[fe80::1%1]:5"),
            // Routes, GIDs and sockets treat it as IPv4.
            ("[::ffff:10.0.0.1]:5", "10.0.0.1:5"),
        ] {
            let addrs = resolve(peer).unwrap();
            let addrs: Vec<String> = addrs.iter().map(SocketAddr::to_string).collect();
            assert_eq!(addrs, [addr]);
        }
    }

    #[test]
    fn tries_all_addresses_until_one_succeeds() {
        let addrs: Vec<SocketAddr> = ["[fd27::1]:5", "10.0.0.1:5", "10.0.0.2:5"]
            .map(|a| a.parse().unwrap())
            .into();
        let tries = |good: &str, addrs: &[SocketAddr]| {
            let mut tried = 0;
            let steps = try_all(addrs, |addr| {
                tried += 1;
                let route = ok("route", format!("to {addr}"));
                let peer = match addr.to_string() == good {
                    true => ok("peer", good),
                    false => bad("peer", Status::Failed, format!("{addr}: no"), "none"),
                };
                (route, peer)
            });
            let found: Vec<String> = steps.into_iter().map(|s| s.found).collect();
            (tried, found)
        };
        let (tried, found) = tries("10.0.0.1:5", &addrs);
        assert_eq!((tried, found[0].as_str()), (2, "to 10.0.0.1:5"));
        assert_eq!(found[1], "10.0.0.1:5");
        let (tried, found) = tries("nobody", &addrs);
        assert_eq!((tried, found[0].as_str()), (3, "to 10.0.0.2:5"));
        assert_eq!(
            found[1],
            "10.0.0.2:5: no (the last of 3 addresses, all tried)"
        );
        // With one address the number of addresses is not mentioned.
        let (_, found) = tries("nobody", &addrs[..1]);
        assert_eq!(found[1], "[fd27::1]:5: no");
    }

    #[test]
    fn a_route_needs_a_port_with_its_address() {
        // The machine can reach itself.
        let roce = port(true, "::ffff:10.27.0.1");
        let step = route(&"127.0.0.1:1".parse().unwrap(), &[&roce]);
        assert_eq!(step.status, Status::Ok, "{step:?}");
        // With IPv6, the local address may be IPv4-mapped.
        if let Ok(local) = local_for(&"[::ffff:127.0.0.1]:1".parse().unwrap()) {
            assert_eq!(local.to_string(), "127.0.0.1");
        }
    }

    fn port(roce: bool, gid: &str) -> dev::Port {
        let gid = dev::Gid {
            index: 0,
            gid: gid.parse().unwrap(),
            kind: String::new(),
        };
        dev::Port {
            number: 1,
            state: "ACTIVE".into(),
            link_layer: String::new(),
            rate: String::new(),
            netdev: Some("eth7".into()),
            gids: vec![gid],
            usable: true,
            roce,
            reason: None,
        }
    }

    #[test]
    fn only_gids_of_roce_tell_of_a_route() {
        let roce = port(true, "::ffff:10.27.0.1");
        let other = port(false, "fe80::2:c903:1:2");
        let closed = dev::Port {
            usable: false,
            ..other.clone()
        };
        let peer = "10.27.0.2:5".parse().unwrap();
        let status = |local: &str, ports: &[&dev::Port]| {
            let step = route_from(local.parse().unwrap(), &peer, ports);
            assert_eq!(step.advice.is_none(), step.status == Status::Ok);
            step.status
        };
        assert_eq!(status("10.27.0.1", &[&roce]), Status::Ok);
        assert_eq!(status("10.27.0.1", &[&other, &roce]), Status::Ok);
        assert_eq!(status("10.9.0.1", &[&roce]), Status::Failed);
        assert_eq!(status("10.9.0.1", &[&roce, &closed]), Status::Failed);
        assert_eq!(status("10.9.0.1", &[&other]), Status::Warning);
        assert_eq!(status("10.9.0.1", &[&roce, &other]), Status::Warning);
        assert_eq!(status("10.27.0.2", &[]), Status::Ok);
        // Loopback needs an address of a device's interface.
        let v6 = port(true, "fd27::1");
        let link_local = port(true, "fe80::1");
        assert_eq!(status("127.0.0.1", &[&link_local, &roce]), Status::Ok);
        assert_eq!(status("::1", &[&v6]), Status::Ok);
        assert_eq!(status("::1", &[&other]), Status::Ok);
        assert_eq!(status("::1", &[&link_local]), Status::Failed);
        assert_eq!(status("127.0.0.1", &[&closed]), Status::Failed);
        assert_eq!(status("127.0.0.1", &[]), Status::Failed);
    }

    #[test]
    fn warns_of_a_limit_that_is_reached() {
        const COUNTERS: &str = include_str!("../../../rust/stats/counters.rs");
        let limit = |name: &str, in_use| Limit {
            name: name.into(),
            most: 4,
            in_use,
        };
        assert!(capacity(&[]).is_none());
        let few = capacity(&[limit("max_connections", 3), limit("max_orphans", 0)]).unwrap();
        assert_eq!(few.status, Status::Ok);
        assert_eq!(few.found, "max_connections 3 of 4, max_orphans 0 of 4");
        for (name, counter) in [
            ("max_connections", "refused_max_connections"),
            ("max_user_connections", "refused_max_user_connections"),
            ("max_orphans", "aborted_max_orphans"),
        ] {
            let full = capacity(&[limit("other", 1), limit(name, 4)]).unwrap();
            assert_eq!(full.status, Status::Warning);
            let advice = full.advice.unwrap();
            assert!(advice.contains(&format!("`sdpctl set {name}=")), "{advice}");
            let pattern = advice.split_once("`sdpctl stat ").unwrap().1;
            let pattern = pattern.split_once('`').unwrap().0;
            assert!(counter.contains(pattern), "{advice}");
            assert!(
                COUNTERS.contains(&format!("=> \"{counter}\",")),
                "{counter}"
            );
        }
    }

    #[test]
    fn advice_names_counters_that_there_are() {
        const COUNTERS: &str = include_str!("../../../rust/stats/counters.rs");
        for (errno, command, names) in [
            (
                libc::ECONNREFUSED,
                "`sdpctl stat refused`",
                &[
                    "refused_bad_hello",
                    "refused_bad_address",
                    "refused_no_memory",
                    "refused_max_connections",
                    "refused_max_user_connections",
                    "refused_mem",
                ][..],
            ),
            (
                libc::ENOBUFS,
                "`sdpctl stat refused_max refused_mem`",
                &["refused_max_connections", "refused_mem"],
            ),
            (
                libc::ETIMEDOUT,
                "`sdpctl stat request_waited dropped_backlog_full refused_max`",
                &["request_waited", "dropped_backlog_full"],
            ),
        ] {
            let advice = advice(&io::Error::from_raw_os_error(errno));
            assert!(advice.contains(command), "{advice}");
            for name in names {
                assert!(advice.contains(name), "{advice}");
                assert!(COUNTERS.contains(&format!("=> \"{name}\",")), "{name}");
            }
        }
        let few_ranges = advice(&io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        assert!(few_ranges.contains("`sdpctl dev`"), "{few_ranges}");
        let unreachable = advice(&io::Error::from_raw_os_error(libc::EHOSTUNREACH));
        assert!(!unreachable.contains("queue"), "{unreachable}");
    }

    #[test]
    fn names_the_kind_of_the_server() {
        use tcp::Answer::{
            Accepts,
            Refuses, //
        };
        let addr = "10.27.0.2:80".parse().unwrap();
        let step = |errno: Option<i32>, by_tcp| {
            let by_sdp = errno.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)));
            peer(&addr, by_sdp, by_tcp)
        };
        let refused = Some(libc::ECONNREFUSED);
        let only_tcp = step(refused, Some(Accepts));
        assert_eq!(only_tcp.status, Status::Failed);
        assert_eq!(
            only_tcp.found,
            "10.27.0.2:80: Connection refused (os error 111); its TCP port takes connections"
        );
        assert_eq!(only_tcp.advice.unwrap(), TCP_ONLY);
        let neither = step(refused, Some(Refuses));
        assert!(
            neither
                .found
                .ends_with("; its TCP port refuses connections"),
            "{neither:?}"
        );
        for by_tcp in [Some(Refuses), None] {
            assert_ne!(step(refused, by_tcp).advice.unwrap(), TCP_ONLY);
        }
        // The server may listen with SDP, but the peer's adapter does not answer.
        let silent = step(Some(libc::ETIMEDOUT), Some(Accepts));
        assert!(
            silent.found.contains("its TCP port takes connections"),
            "{silent:?}"
        );
        assert_ne!(silent.advice.unwrap(), TCP_ONLY);
        for (by_tcp, found) in [
            (
                Some(Accepts),
                "10.27.0.2:80 takes connections by SDP and by TCP",
            ),
            (
                Some(Refuses),
                "10.27.0.2:80 takes connections by SDP; its TCP port refuses connections",
            ),
            (None, "10.27.0.2:80 takes connections by SDP"),
        ] {
            let step = step(None, by_tcp);
            assert_eq!((step.status, step.found.as_str()), (Status::Ok, found));
        }
    }

    #[test]
    fn the_worst_step_decides() {
        assert!(Status::Failed > Status::Warning && Status::Warning > Status::Ok);
    }
}
