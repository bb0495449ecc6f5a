// SPDX-License-Identifier: GPL-2.0
//! Sockets of one network namespace are not visible in another.

use crate::support::flow;
use crate::support::harness::{
    differences, expect, expect_eq, expect_errno, expect_errno_of, joined, skip, tests, Child, Env,
    Outcome, ANY4, QUIET_MS,
};
use crate::support::sys;
use libc::{ENETUNREACH, POLLIN};
use std::sync::Arc;

tests!("netns";
    loopback_listener_is_not_seen,
    port_is_free_elsewhere,
    nothing_is_reachable_without_addresses,
    socket_keeps_its_namespace,
    reserved_ports_are_left_alone,
    former_listeners_connect,
);

fn needs_root() -> Outcome {
    if sys::is_root() {
        Ok(())
    } else {
        skip("needs root")
    }
}

/// A listener on 127.0.0.1 in one namespace is not reachable at 127.0.0.1 in another.
fn loopback_listener_is_not_seen(env: &Env) -> Outcome {
    needs_root()?;
    let env = env.on_loopback();
    let wildcard = env.family.socket(ANY4)?;
    wildcard.bind(&(ANY4, 0).into())?;
    wildcard.listen(2)?;
    let (listener, addr) = env.listener(2)?;
    let ports = [addr.port(), wildcard.getsockname()?.port()];
    Child::start(|| {
        sys::new_netns()?;
        sys::loopback_up()?;
        for port in ports {
            let sock = env.socket()?;
            let refused = differences::nobody_at_loopback(env.family);
            expect_errno_of(sock.connect(&env.here(port)), refused, "connect")?;
        }
        Ok(())
    })?
    .join()?;
    for listener in [&listener, &wildcard] {
        let seen = listener.poll(POLLIN, QUIET_MS)?;
        expect(seen == 0, "a connection came from another namespace")?;
    }
    Ok(())
}

fn port_is_free_elsewhere(env: &Env) -> Outcome {
    needs_root()?;
    let env = env.on_loopback();
    let (_listener, addr) = env.listener(2)?;
    Child::start(|| {
        sys::new_netns()?;
        sys::loopback_up()?;
        let sock = env.socket()?;
        sock.bind(&addr)?;
        sock.listen(1)?;
        Ok(())
    })?
    .join()
}

fn nothing_is_reachable_without_addresses(env: &Env) -> Outcome {
    needs_root()?;
    Child::start(|| {
        sys::new_netns()?;
        let sock = env.family.socket(ANY4)?;
        let far = ([192, 0, 2, 1].into(), 7).into();
        expect_errno(sock.connect(&far), ENETUNREACH, "192.0.2.1")?;
        sock.set_nonblocking(true)?;
        expect_errno(sock.connect(&far), ENETUNREACH, "192.0.2.1, nonblocking")
    })?
    .join()
}

/// A socket stays in its namespace when its process moves to another.
fn socket_keeps_its_namespace(env: &Env) -> Outcome {
    needs_root()?;
    let env = env.on_loopback();
    let (listener, addr) = env.listener(2)?;
    let sock = env.socket()?;
    Child::start(|| {
        sys::new_netns()?;
        sock.connect(&addr)?;
        sock.send_all(b"x")?;
        let new = env.socket()?;
        let result = new.connect(&addr);
        expect_errno_of(
            result,
            differences::nobody_at_loopback(env.family),
            "a new one",
        )
    })?
    .join()?;
    let (other, _) = listener.accept()?;
    other.recv_exact(&mut [0])?;
    Ok(())
}

/// The kernel never chooses a port that the administrator has reserved.
fn reserved_ports_are_left_alone(env: &Env) -> Outcome {
    needs_root()?;
    let env = env.on_loopback();
    Child::start(|| {
        sys::new_netns()?;
        sys::loopback_up()?;
        let set = |name: &str, value| std::fs::write(format!("/proc/sys/net/ipv4/{name}"), value);
        set("ip_local_port_range", "40000 40009")?;
        set("ip_local_reserved_ports", "40000-40008")?;
        let sock = env.socket()?;
        sock.bind(&env.here(0))?;
        expect_eq(sock.getsockname()?.port(), 40009, "port")
    })?
    .join()
}

/// Sockets that have just stopped listening call connect(), which fails at once, and get other
/// ports. No state of the listeners may be left.
fn former_listeners_connect(env: &Env) -> Outcome {
    needs_root()?;
    let rounds = env.scaled(1000);
    let env = env.on_loopback();
    Child::start(|| {
        sys::new_netns()?;
        sys::loopback_up()?;
        for _ in 0..rounds {
            let sock = Arc::new(env.socket()?);
            sock.set_nonblocking(true)?;
            sock.listen(1)?;
            let hammer = {
                let (sock, to) = (sock.clone(), env.here(7));
                flow::spawn(move || {
                    for _ in 0..60 {
                        let _ = sock.connect(&to);
                    }
                })?
            };
            sock.shutdown(libc::SHUT_RDWR)?;
            for _ in 0..60 {
                let _ = sock.connect(&env.here(7));
            }
            joined(hammer)?;
        }
        Ok(())
    })?
    .join()
}
