// SPDX-License-Identifier: GPL-2.0
//! bind(), and the possible forms of an address.

use crate::support::harness::{
    differences, expect, expect_eq, expect_errno, expect_errno_of, skip, tests, Child, Env,
    Outcome, ANY4, ANY6,
};
use crate::support::sys::{self, Sock, SockAddr};
use libc::{EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT, EFAULT, EINVAL, SOL_SOCKET};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;
use uapi::socket::{AF_INET6_SDP, AF_INET_SDP};

tests!("addresses";
    bind_short_and_long,
    bind_wrong_family,
    sdp_family_in_address,
    sdp_binds_v6_wildcard,
    connect_short_and_wrong_family,
    bind_twice,
    bind_foreign,
    bind_port_zero,
    bind_privileged_port,
    listen_without_bind,
    bound_address_is_kept_by_connect,
    port_in_use,
    wildcard_conflicts,
    different_addresses_share_a_port,
    port_is_free_after_close,
    reuseaddr,
    reuseaddr_beside_connection,
    reuseport,
    v6_wildcard_takes_v4_port,
    v6only,
    sysctl_decides_v6only,
    v4_mapped,
);

/// Addresses of wrong lengths, or at bad pointers, are refused.
fn bind_short_and_long(env: &Env) -> Outcome {
    let sock = env.socket()?;
    let good = env.here(0);
    for len in [0, 1, 2, 4, 8, 15] {
        let result = sock.bind(&good.with_len(len));
        expect_errno(result, EINVAL, format!("{len} bytes"))?;
    }
    for len in [129, 4096, i32::MAX as usize, u32::MAX as usize] {
        let result = sock.bind(&good.with_len(len));
        expect_errno(result, EINVAL, format!("{len} bytes"))?;
    }
    for addr in [0, 1, usize::MAX - 64] {
        let result = sock.bind_raw(addr, good.len() as u32);
        expect_errno(result, EFAULT, format!("at {addr:#x}"))?;
    }
    // An address may be longer than its family needs; the rest is ignored.
    sock.bind(&good.with_len(64))?;
    expect(sock.getsockname()?.port() != 0, "no port")
}

fn bind_wrong_family(env: &Env) -> Outcome {
    let sock = env.socket()?;
    let (good, other) = match env.local {
        IpAddr::V4(_) => (env.here(0), libc::AF_INET6),
        IpAddr::V6(_) => (env.here(0), libc::AF_INET),
    };
    // As AF_INET6, the bytes would be an IPv6 wildcard, too, which an SDP socket takes
    // (`sdp_binds_v6_wildcard`).
    let other = if !env.family.is_inet() {
        libc::AF_X25
    } else {
        other
    };
    for family in [other, libc::AF_UNIX, libc::AF_NETLINK, 26, 29, 44, 0xffff] {
        let addr = good.with_family(family).with_len(28);
        let result = sock.bind(&addr);
        expect_errno_of(result, &[EAFNOSUPPORT, EINVAL], format!("family {family}"))?;
    }
    expect_eq(sock.getsockname()?.port(), 0, "the port after failures")
}

/// SDP programs may also use 27 or 28 as the family of an address.
fn sdp_family_in_address(env: &Env) -> Outcome {
    let mut envs = vec![(env.clone(), AF_INET_SDP)];
    if env.has_ipv6().is_ok() {
        envs.push((env.over_ipv6()?, AF_INET6_SDP));
    }
    for (env, family) in envs {
        let listener = env.socket()?;
        let result = listener.bind(&env.here(0).with_family(family));
        if !differences::takes_sdp_addresses(env.family) {
            expect_errno(result, EAFNOSUPPORT, "an SDP address")?;
            continue;
        }
        result?;
        listener.listen(1)?;
        let addr = listener.getsockname()?;
        expect(addr.to_std().is_some(), format!("getsockname gives {addr}"))?;
        let sock = env.socket()?;
        sock.connect(&addr.with_family(family))?;
        let (_, from) = listener.accept()?;
        expect_eq(from.to_std(), sock.getsockname()?.to_std(), "accepted")?;
        expect_eq(sock.getpeername()?.to_std(), addr.to_std(), "getpeername")?;
    }
    Ok(())
}

/// A socket of family 27 can be bound to the IPv6 wildcard, which qperf does.
fn sdp_binds_v6_wildcard(env: &Env) -> Outcome {
    let sock = env.family.socket(ANY4)?;
    let result = sock.bind(&(ANY6, 0).into());
    if env.family.is_inet() {
        return expect_errno(result, EAFNOSUPPORT, "an IPv6 address");
    }
    result?;
    sock.listen(1)?;
    let name = sock.getsockname()?;
    expect(name.port() != 0, format!("getsockname gives {name}"))?;
    let client = env.on_loopback().socket()?;
    client.connect(&(Ipv4Addr::LOCALHOST.into(), name.port()).into())?;
    sock.accept()?;
    let foreign = env.family.socket(ANY4)?;
    let addr = (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x77).into(), 0).into();
    expect(foreign.bind(&addr).is_err(), "bound to an IPv6 address")
}

fn connect_short_and_wrong_family(env: &Env) -> Outcome {
    let (_listener, addr) = env.listener(1)?;
    let sock = env.socket()?;
    for len in [0, 1, 8, 15] {
        let result = sock.connect(&addr.with_len(len));
        expect_errno(result, EINVAL, format!("{len} bytes"))?;
    }
    for len in [129, u32::MAX as usize] {
        let result = sock.connect(&addr.with_len(len));
        expect_errno(result, EINVAL, format!("{len} bytes"))?;
    }
    for family in [libc::AF_UNIX, libc::AF_NETLINK, 26, 29, 0xffff] {
        let result = sock.connect(&addr.with_family(family).with_len(28));
        expect_errno(result, EAFNOSUPPORT, format!("family {family}"))?;
    }
    // The failed calls have not changed the socket.
    sock.connect(&addr)?;
    Ok(())
}

fn bind_twice(env: &Env) -> Outcome {
    let sock = env.socket()?;
    sock.bind(&env.here(0))?;
    let name = sock.getsockname()?;
    expect_errno(sock.bind(&env.here(0)), EINVAL, "the second bind")?;
    expect_eq(
        sock.getsockname()?.to_std(),
        name.to_std(),
        "the name after it",
    )
}

/// No machine has the addresses for documentation.
fn bind_foreign(env: &Env) -> Outcome {
    let sock = env.family.socket(ANY4)?;
    let foreign = IpAddr::from([192, 0, 2, 1]);
    expect_errno(sock.bind(&(foreign, 0).into()), EADDRNOTAVAIL, "192.0.2.1")?;
    sock.bind(&(ANY4, 0).into())?;
    env.has_ipv6()?;
    let sock = env.family.socket(ANY6)?;
    let foreign = IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
    expect_errno(
        sock.bind(&(foreign, 0).into()),
        EADDRNOTAVAIL,
        "2001:db8::1",
    )
}

fn bind_port_zero(env: &Env) -> Outcome {
    let mut ports = std::collections::HashSet::new();
    let mut socks = Vec::new();
    for _ in 0..50 {
        let sock = env.socket()?;
        expect_eq(sock.getsockname()?.port(), 0, "the port before bind")?;
        sock.bind(&env.here(0))?;
        let name = sock.getsockname()?;
        expect_eq(name.ip(), Some(env.local), "the address")?;
        expect(name.port() >= 1024, format!("port {}", name.port()))?;
        expect(ports.insert(name.port()), "the same port twice")?;
        socks.push(sock);
    }
    Ok(())
}

fn bind_privileged_port(env: &Env) -> Outcome {
    let first = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    let first: u16 = first?.trim().parse().unwrap_or(1024);
    if !sys::is_root() || first < 100 {
        return skip("needs root, and a system with privileged ports");
    }
    let sock = env.socket()?;
    let port = first - 7;
    let bound = sock.bind(&env.here(port));
    if bound
        .as_ref()
        .is_err_and(|e| e.raw_os_error() == Some(EADDRINUSE))
    {
        return skip(format!("port {port} is in use"));
    }
    bound?;
    drop(sock);
    Child::start(|| {
        sys::become_nobody()?;
        let sock = env.socket()?;
        expect_errno(sock.bind(&env.here(port)), libc::EACCES, "bind as nobody")?;
        sock.bind(&env.here(0))?;
        Ok(())
    })?
    .join()
}

fn listen_without_bind(env: &Env) -> Outcome {
    let listener = env.socket()?;
    listener.listen(5)?;
    let name = listener.getsockname()?;
    expect(name.port() != 0, "no port")?;
    let any = if env.local.is_ipv4() { ANY4 } else { ANY6 };
    expect_eq(name.ip(), Some(any), "the address")?;
    let sock = env.socket()?;
    sock.connect(&env.here(name.port()))?;
    let (other, _) = listener.accept()?;
    expect_eq(
        other.getsockname()?.ip(),
        Some(env.local),
        "the accepted one's address",
    )
}

fn bound_address_is_kept_by_connect(env: &Env) -> Outcome {
    let (listener, addr) = env.remote_listener(1)?;
    let sock = env.socket()?;
    sock.bind(&env.here(0))?;
    let name = sock.getsockname()?;
    sock.connect(&addr)?;
    expect_eq(sock.getsockname()?.to_std(), name.to_std(), "after connect")?;
    let (_, from) = listener.accept()?;
    expect_eq(from.to_std(), name.to_std(), "as the peer sees it")
}

/// A bound socket of the family of `ip`, with an option set.
fn bound(env: &Env, ip: IpAddr, port: u16, option: Option<i32>) -> io::Result<Sock> {
    let sock = env.family.socket(ip)?;
    if let Some(option) = option {
        sock.set_int(SOL_SOCKET, option, 1)?;
    }
    sock.bind(&(ip, port).into())?;
    Ok(sock)
}

fn port_of(sock: &Sock) -> io::Result<u16> {
    sock.getsockname().map(SockAddr::port)
}

fn port_in_use(env: &Env) -> Outcome {
    let first = bound(env, env.local, 0, None)?;
    let port = port_of(&first)?;
    expect_errno(
        bound(env, env.local, port, None),
        EADDRINUSE,
        "bound beside bound",
    )?;
    first.listen(1)?;
    expect_errno(
        bound(env, env.local, port, None),
        EADDRINUSE,
        "beside a listener",
    )
}

fn wildcard_conflicts(env: &Env) -> Outcome {
    let any = if env.local.is_ipv4() { ANY4 } else { ANY6 };
    for (one, other) in [(any, env.local), (env.local, any)] {
        let first = bound(env, one, 0, None)?;
        let port = port_of(&first)?;
        let text = format!("{other} beside {one}");
        expect_errno(bound(env, other, port, None), EADDRINUSE, text)?;
    }
    Ok(())
}

fn different_addresses_share_a_port(env: &Env) -> Outcome {
    let one = bound(env, [127, 0, 0, 1].into(), 0, None)?;
    let other = bound(env, [127, 0, 0, 2].into(), port_of(&one)?, None)?;
    one.listen(2)?;
    other.listen(2)?;
    for listener in [&one, &other, &one] {
        let addr = listener.getsockname()?;
        let sock = env.on_loopback().socket()?;
        sock.connect(&addr)?;
        let (accepted, from) = listener.accept()?;
        expect_eq(from.to_std(), sock.getsockname()?.to_std(), "accepted")?;
        expect_eq(accepted.getsockname()?.to_std(), addr.to_std(), "its name")?;
    }
    Ok(())
}

fn port_is_free_after_close(env: &Env) -> Outcome {
    let sock = bound(env, env.local, 0, None)?;
    let port = port_of(&sock)?;
    sock.close()?;
    let sock = bound(env, env.local, port, None)?;
    sock.listen(1)?;
    sock.close()?;
    bound(env, env.local, port, None)?;
    Ok(())
}

fn reuseaddr(env: &Env) -> Outcome {
    let reuse = Some(libc::SO_REUSEADDR);
    let first = bound(env, env.local, 0, reuse)?;
    let port = port_of(&first)?;
    expect_errno(
        bound(env, env.local, port, None),
        EADDRINUSE,
        "without the option",
    )?;
    let second = bound(env, env.local, port, reuse)?;
    first.listen(1)?;
    expect_errno(second.listen(1), EADDRINUSE, "two listeners")?;
    expect_errno(
        bound(env, env.local, port, reuse),
        EADDRINUSE,
        "beside a listener",
    )
}

/// A server can restart while its old connections exist.
fn reuseaddr_beside_connection(env: &Env) -> Outcome {
    let listener = bound(env, env.local, 0, Some(libc::SO_REUSEADDR))?;
    let port = port_of(&listener)?;
    listener.listen(1)?;
    let sock = env.socket()?;
    sock.connect(&env.here(port))?;
    let (accepted, _) = listener.accept()?;
    listener.close()?;
    expect_errno(
        bound(env, env.local, port, None),
        EADDRINUSE,
        "without the option",
    )?;
    let again = bound(env, env.local, port, Some(libc::SO_REUSEADDR))?;
    again.listen(1)?;
    let second = env.socket()?;
    second.connect(&env.here(port))?;
    again.accept()?;
    accepted.send_all(b"still here")?;
    let mut buf = [0; 10];
    sock.recv_exact(&mut buf)?;
    expect_eq(&buf, b"still here", "the old connection")
}

/// Two listeners share a port, and each connection reaches one of them.
fn reuseport(env: &Env) -> Outcome {
    let reuse = Some(libc::SO_REUSEPORT);
    let first = bound(env, env.local, 0, reuse)?;
    let port = port_of(&first)?;
    expect_errno(
        bound(env, env.local, port, None),
        EADDRINUSE,
        "without the option",
    )?;
    let second = bound(env, env.local, port, reuse)?;
    first.listen(50)?;
    second.listen(50)?;
    let mut clients = Vec::new();
    for _ in 0..20 {
        let sock = env.socket()?;
        sock.connect(&env.here(port))?;
        clients.push(sock);
    }
    let mut seen = 0;
    while seen < clients.len() {
        let fds = [&first, &second].map(|l| (l.as_raw_fd(), libc::POLLIN));
        let ready = sys::poll_fds(&fds, -1)?;
        for (listener, ready) in [&first, &second].into_iter().zip(ready) {
            if ready != 0 {
                listener.accept()?;
                seen += 1;
            }
        }
    }
    Ok(())
}

fn v6_wildcard_takes_v4_port(env: &Env) -> Outcome {
    env.has_ipv6()?;
    let both = bound(env, ANY6, 0, None)?;
    let port = port_of(&both)?;
    expect_errno(
        bound(env, ANY4, port, None),
        EADDRINUSE,
        "0.0.0.0 beside ::",
    )?;
    let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
    expect_errno(
        bound(env, loopback, port, None),
        EADDRINUSE,
        "127.0.0.1 beside ::",
    )
}

fn v6only(env: &Env) -> Outcome {
    env.has_ipv6()?;
    let listener = env.family.socket(ANY6)?;
    listener.set_int(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
    listener.bind(&(ANY6, 0).into())?;
    let port = port_of(&listener)?;
    listener.listen(1)?;
    let set = listener.set_int(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0);
    expect_errno(set, EINVAL, "IPV6_V6ONLY after bind")?;
    let get = listener.get_int(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY)?;
    expect_eq(get, 1, "IPV6_V6ONLY")?;
    let v4: SockAddr = (Ipv4Addr::LOCALHOST.into(), port).into();
    let sock = env.family.socket(ANY4)?;
    expect_errno(
        sock.connect(&v4),
        libc::ECONNREFUSED,
        "IPv4 to a V6ONLY listener",
    )?;
    let sock = env.family.socket(ANY6)?;
    sock.connect(&(Ipv6Addr::LOCALHOST.into(), port).into())?;
    // The IPv4 port is free for another socket.
    let other = bound(env, ANY4, port, None)?;
    other.listen(1)?;
    env.family.socket(ANY4)?.connect(&v4)?;
    let only = env.family.socket(ANY6)?;
    only.set_int(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
    let mapped = (Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(), port).into();
    expect_errno(only.connect(&mapped), libc::ENETUNREACH, "V6ONLY to IPv4")
}

/// A value of net.ipv6.bindv6only; dropping it restores the old value.
struct BindV6only(String);

impl BindV6only {
    const PATH: &str = "/proc/sys/net/ipv6/bindv6only";

    fn set(value: &str) -> io::Result<BindV6only> {
        let before = std::fs::read_to_string(Self::PATH)?;
        std::fs::write(Self::PATH, value)?;
        Ok(BindV6only(before))
    }
}

impl Drop for BindV6only {
    fn drop(&mut self) {
        let _ = std::fs::write(Self::PATH, &self.0);
    }
}

/// The sysctl net.ipv6.bindv6only affects new IPv6 sockets, and does not affect IPv4 sockets.
fn sysctl_decides_v6only(env: &Env) -> Outcome {
    env.has_ipv6()?;
    if !sys::is_root() {
        return skip("needs root");
    }
    let before = env.family.socket(ANY6)?;
    for (value, only) in [("1", 1), ("0", 0)] {
        let _value = BindV6only::set(value)?;
        let v6only = |sock: &Sock| sock.get_int(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY);
        let (listener, addr) = env.listener(1)?;
        let sock = env.socket()?;
        sock.connect(&addr)?;
        listener.accept()?;
        let listener = env.family.socket(ANY6)?;
        expect_eq(
            v6only(&listener)?,
            only,
            format!("of a new socket with {value}"),
        )?;
        expect_eq(
            v6only(&before)?,
            0,
            format!("of an old socket with {value}"),
        )?;
        listener.bind(&(ANY6, 0).into())?;
        listener.listen(1)?;
        let port = port_of(&listener)?;
        let sock = env.family.socket(ANY6)?;
        sock.connect(&(Ipv6Addr::LOCALHOST.into(), port).into())?;
        listener.accept()?;
        let v4 = (Ipv4Addr::LOCALHOST.into(), port).into();
        let result = env.family.socket(ANY4)?.connect(&v4);
        if only == 1 {
            expect_errno(result, libc::ECONNREFUSED, "IPv4 to the IPv6 listener")?;
            // The IPv4 port is free for another socket.
            let other = bound(env, ANY4, port, None)?;
            other.listen(1)?;
            env.family.socket(ANY4)?.connect(&v4)?;
            other.accept()?;
        } else {
            result?;
            let (accepted, _) = listener.accept()?;
            expect_eq(v6only(&accepted)?, 0, "of an accepted socket")?;
        }
    }
    Ok(())
}

/// An IPv6 socket can use IPv4 with mapped addresses, as a listener and as a client.
fn v4_mapped(env: &Env) -> Outcome {
    env.has_ipv6()?;
    let IpAddr::V4(local) = env.local else {
        return skip("the address is not IPv4");
    };
    let mapped = IpAddr::from(local.to_ipv6_mapped());
    let listener = bound(env, ANY6, 0, None)?;
    listener.listen(2)?;
    let port = port_of(&listener)?;
    let v4 = env.socket()?;
    v4.connect(&env.here(port))?;
    let (accepted, from) = listener.accept()?;
    expect_eq(from.ip(), Some(mapped), "accept's address")?;
    expect_eq(
        accepted.getsockname()?.ip(),
        Some(mapped),
        "the accepted one's",
    )?;
    accepted.send_all(b"x")?;
    v4.recv_exact(&mut [0])?;
    let (listener, addr) = env.listener(1)?;
    let v6 = env.family.socket(ANY6)?;
    v6.connect(&(mapped, addr.port()).into())?;
    let (accepted, from) = listener.accept()?;
    expect_eq(from.ip(), Some(env.local), "as the IPv4 listener sees it")?;
    expect_eq(v6.getpeername()?.ip(), Some(mapped), "getpeername")?;
    expect_eq(v6.getsockname()?.ip(), Some(mapped), "getsockname")?;
    v6.send_all(b"y")?;
    accepted.recv_exact(&mut [0])?;
    Ok(())
}
