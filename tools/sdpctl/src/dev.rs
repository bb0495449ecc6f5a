// SPDX-License-Identifier: GPL-2.0

//! `sdpctl dev`: the RDMA devices, from sysfs, and whether SDP can use their ports.

use std::fs;
use std::net::{
    IpAddr,
    Ipv6Addr, //
};
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use crate::cli::Cli;
use crate::conn::DEBUGFS;
use crate::fail::Fail;
use crate::out;

const CLASS: &str = "/sys/class/infiniband";
const NETDEVS: &str = "/sys/class/net";

#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) node_type: String,
    pub(crate) ports: Vec<Port>,
}

impl Device {
    /// Whether SDP uses the ports of TCP over this device, as with iWARP.
    pub(crate) fn shares_ports(&self) -> bool {
        self.node_type == RNIC && self.ports.iter().any(|p| p.usable)
    }
}

#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) number: u32,
    pub(crate) state: String,
    pub(crate) link_layer: String,
    pub(crate) rate: String,
    pub(crate) netdev: Option<String>,
    pub(crate) gids: Vec<Gid>,
    pub(crate) usable: bool,
    /// Whether its GIDs are IP addresses, which is not the case with InfiniBand and iWARP.
    #[serde(skip)]
    pub(crate) roce: bool,
    /// Why SDP cannot use the port, and what to do.
    pub(crate) reason: Option<String>,
}

#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub(crate) struct Gid {
    pub(crate) index: u32,
    pub(crate) gid: Ipv6Addr,
    #[serde(rename = "type")]
    pub(crate) kind: String,
}

impl Gid {
    /// The GID as an IP address.
    pub(crate) fn ip(&self) -> IpAddr {
        match self.gid.to_ipv4_mapped() {
            Some(ip) => ip.into(),
            None => self.gid.into(),
        }
    }
}

#[derive(Serialize)]
struct Report {
    format: u32,
    devices: Vec<Device>,
}

pub(crate) fn run(cli: &Cli) -> Result<ExitCode, Fail> {
    let devices = here();
    let usable = devices.iter().flat_map(|d| &d.ports).any(|p| p.usable);
    if cli.json {
        let format = out::FORMAT;
        out::json(&Report { format, devices })?;
    } else if devices.is_empty() {
        out::line(format_args!("no RDMA device: {NO_DEVICE}"))?;
    } else {
        print(cli, &devices)?;
    }
    Ok(ExitCode::from(u8::from(!usable)))
}

/// Advice if there is no device.
pub(crate) const NO_DEVICE: &str = "load the driver of the adapter; for soft-RoCE, \
	`modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0`";

/// The node type of iWARP devices.
const RNIC: &str = "RNIC";

/// A sysctl folder of the kernel's iWARP CM, which exists only in the initial network namespace.
const OF_FIRST_NAMESPACE: &str = "/proc/sys/net/iw_cm";

/// The devices of this namespace.
pub(crate) fn here() -> Vec<Device> {
    let is_first = Path::new(OF_FIRST_NAMESPACE).exists();
    let abilities = Path::new(DEBUGFS).join("devices");
    all(Path::new(CLASS), Path::new(NETDEVS), &abilities, is_first)
}

fn read(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_string())
}

/// The text after the colon of, for example, `4: ACTIVE`.
fn behind_colon(text: &str) -> String {
    text.split_once(": ")
        .map_or(text, |(_, name)| name)
        .to_string()
}

/// The names in a folder, numbers in numerical order.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|e| e.file_name().into_string().ok())
        .collect();
    names.sort_by_key(|name| (name.parse::<u32>().unwrap_or(0), name.clone()));
    names
}

/// Whether connections over the device are impossible. `abilities` is the folder of the module's
/// files of devices, which only root can read; for other users the result is false.
fn has_few_ranges(abilities: &Path, name: &str) -> bool {
    let text = read(&abilities.join(name)).unwrap_or_default();
    text.lines().any(|line| line == "connections no")
}

/// Why SDP cannot use a device.
pub(crate) const FEW_RANGES: &str =
    "its driver takes fewer than two memory ranges in a send or a receive, and SDP needs two: use another adapter";

fn all(class: &Path, netdevs: &Path, abilities: &Path, is_first: bool) -> Vec<Device> {
    let device = |name: String| {
        let folder = class.join(&name);
        let ports = folder.join("ports");
        let node_type =
            read(&folder.join("node_type")).map_or_else(String::new, |t| behind_colon(&t));
        let is_iwarp = node_type == RNIC;
        let mut found: Vec<Port> = names(&ports)
            .iter()
            .filter_map(|n| port(&ports, n, &node_type, netdevs))
            .collect();
        for port in found.iter_mut().filter(|_| is_iwarp && !is_first) {
            port.usable = false;
            port.reason = Some(
                "SDP uses iWARP in the first network namespace only: use SDP there".to_string(),
            );
        }
        if has_few_ranges(abilities, &name) {
            for port in &mut found {
                port.usable = false;
                port.reason = Some(FEW_RANGES.to_string());
            }
        }
        Device {
            ports: found,
            node_type,
            name,
        }
    };
    names(class).into_iter().map(device).collect()
}

fn port(ports: &Path, number: &str, node_type: &str, netdevs: &Path) -> Option<Port> {
    let folder = ports.join(number);
    let state = behind_colon(&read(&folder.join("state"))?);
    let gids: Vec<Gid> = names(&folder.join("gids"))
        .iter()
        .filter_map(|index| gid(&folder, index))
        .collect();
    let ndevs = folder.join("gid_attrs/ndevs");
    let netdev = names(&ndevs).iter().find_map(|n| read(&ndevs.join(n)));
    // The kernel labels every GID on Ethernet as RoCE.
    let is_iwarp = node_type == RNIC;
    let gids: Vec<Gid> = gids
        .into_iter()
        .map(|gid| match is_iwarp {
            true => Gid {
                kind: "iWARP".to_string(),
                ..gid
            },
            false => gid,
        })
        .collect();
    let elsewhere = netdev
        .as_ref()
        .is_some_and(|name| !netdevs.join(name).exists());
    let reason = why_not(&state, &gids, netdev.as_deref(), elsewhere);
    let link_layer = read(&folder.join("link_layer")).unwrap_or_default();
    Some(Port {
        number: number.parse().ok()?,
        // An iWARP adapter is an RNIC, also on Ethernet.
        roce: node_type == "CA" && link_layer == "Ethernet",
        link_layer,
        rate: read(&folder.join("rate")).unwrap_or_default(),
        usable: reason.is_none(),
        state,
        netdev,
        gids,
        reason,
    })
}

fn gid(port: &Path, index: &str) -> Option<Gid> {
    let gid: Ipv6Addr = read(&port.join("gids").join(index))?.parse().ok()?;
    if gid.is_unspecified() {
        return None;
    }
    let kind = read(&port.join("gid_attrs/types").join(index))?;
    let index = index.parse().ok()?;
    Some(Gid { index, gid, kind })
}

fn why_not(state: &str, gids: &[Gid], netdev: Option<&str>, elsewhere: bool) -> Option<String> {
    let netdev = netdev.unwrap_or("its network interface");
    if elsewhere {
        Some(format!(
            "{netdev} is in another network namespace: move it here, or use SDP there"
        ))
    } else if state != "ACTIVE" {
        Some(format!(
            "the port is {state}: `ip link set {netdev} up`, and look at the cable"
        ))
    } else if gids.is_empty() {
        Some(format!("no GID: give {netdev} an address"))
    } else {
        None
    }
}

fn print(cli: &Cli, devices: &[Device]) -> Result<(), Fail> {
    let on = out::is_coloured(cli.color);
    for device in devices {
        out::line(format_args!(
            "{} ({})",
            out::paint(&device.name, out::Color::Bold, on),
            device.node_type
        ))?;
        for port in &device.ports {
            let netdev = port.netdev.as_deref().unwrap_or("-");
            let (word, color) = match port.usable {
                true => ("usable", out::Color::Good),
                false => ("not usable", out::Color::Bad),
            };
            out::line(format_args!(
                "  port {}  {}  {}  {}  netdev {netdev}  {}",
                port.number,
                port.state,
                port.link_layer,
                port.rate,
                out::paint(word, color, on)
            ))?;
            if let Some(reason) = &port.reason {
                out::line(format_args!("    {reason}"))?;
            }
            for gid in &port.gids {
                out::line(format_args!(
                    "    gid {}  {}  {}",
                    gid.index,
                    gid.ip(),
                    gid.kind
                ))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(state: &str, gids: &[&str]) -> (tempdir::Dir, Vec<Device>) {
        let dir = tempdir::Dir::new();
        let port = dir.0.join("rxe0/ports/1");
        for folder in ["gids", "gid_attrs/types", "gid_attrs/ndevs"] {
            fs::create_dir_all(port.join(folder)).unwrap();
        }
        let write = |name: &str, text: &str| fs::write(port.join(name), text).unwrap();
        fs::write(dir.0.join("rxe0/node_type"), "1: CA\n").unwrap();
        write("state", state);
        write("link_layer", "Ethernet\n");
        write("rate", "2.5 Gb/sec (1X SDR)\n");
        for (i, gid) in gids.iter().enumerate() {
            write(&format!("gids/{i}"), gid);
            if !gid.starts_with("0000:0000:0000:0000:0000:0000") {
                write(&format!("gid_attrs/types/{i}"), "RoCE v2\n");
                write(&format!("gid_attrs/ndevs/{i}"), "eth0\n");
            }
        }
        fs::create_dir_all(dir.0.join("net/eth0")).unwrap();
        let devices = all(&dir.0, &dir.0.join("net"), &dir.0.join("none"), true);
        let devices = devices.into_iter().filter(|d| d.name != "net").collect();
        (dir, devices)
    }

    /// A folder that is removed when its owner is dropped.
    mod tempdir {
        use std::path::PathBuf;
        use std::sync::atomic::{
            AtomicU32,
            Ordering, //
        };

        pub(super) struct Dir(pub(super) PathBuf);

        impl Dir {
            pub(super) fn new() -> Self {
                static NUMBER: AtomicU32 = AtomicU32::new(0);
                let number = NUMBER.fetch_add(1, Ordering::Relaxed);
                let name = format!("sdpctl-{}-{number}", std::process::id());
                let path = std::env::temp_dir().join(name);
                std::fs::create_dir_all(&path).unwrap();
                Self(path)
            }
        }

        impl Drop for Dir {
            fn drop(&mut self) {
                let _ = std::fs::remove_dir_all(&self.0);
            }
        }
    }

    const EMPTY: &str = "0000:0000:0000:0000:0000:0000:0000:0000\n";

    #[test]
    fn reads_a_port() {
        let gids = [
            "fe80:0000:0000:0000:5054:00ff:fe00:0001\n",
            "fd27:0000:0000:0000:0000:0000:0000:0001\n",
            EMPTY,
        ];
        let (_dir, devices) = tree("4: ACTIVE\n", &gids);
        let [device] = devices.as_slice() else {
            panic!("{devices:?}")
        };
        assert_eq!(
            (device.name.as_str(), device.node_type.as_str()),
            ("rxe0", "CA")
        );
        let port = &device.ports[0];
        assert!(port.usable, "{port:?}");
        assert_eq!((port.number, port.state.as_str()), (1, "ACTIVE"));
        assert_eq!(port.netdev.as_deref(), Some("eth0"));
        assert!(port.roce);
        let ips: Vec<String> = port.gids.iter().map(|g| g.ip().to_string()).collect();
        assert_eq!(ips, ["fe80::5054:ff:fe00:1", "fd27::1"]);
    }

    #[test]
    fn knows_roce() {
        let (dir, _) = tree("4: ACTIVE\n", &[EMPTY]);
        for (node_type, link_layer, roce) in [
            ("1: CA\n", "Ethernet\n", true),
            ("1: CA\n", "InfiniBand\n", false),
            ("4: RNIC\n", "Ethernet\n", false),
            ("7: unspecified\n", "Unspecified\n", false),
        ] {
            fs::write(dir.0.join("rxe0/node_type"), node_type).unwrap();
            fs::write(dir.0.join("rxe0/ports/1/link_layer"), link_layer).unwrap();
            let devices = all(&dir.0, &dir.0.join("net"), &dir.0.join("none"), true);
            let port = devices.iter().flat_map(|d| &d.ports).next().unwrap();
            assert_eq!(port.roce, roce, "{node_type} {link_layer}");
        }
    }

    #[test]
    fn knows_iwarp() {
        let (dir, roce) = tree(
            "4: ACTIVE\n",
            &["5254:0027:0001:0000:0000:0000:0000:0000\n"],
        );
        assert!(roce[0].ports[0].usable && !roce[0].shares_ports());
        fs::write(dir.0.join("rxe0/node_type"), "4: RNIC\n").unwrap();
        let port = |is_first| {
            let devices = all(&dir.0, &dir.0.join("net"), &dir.0.join("none"), is_first);
            assert_eq!(devices.iter().any(Device::shares_ports), is_first);
            devices.into_iter().flat_map(|d| d.ports).next().unwrap()
        };
        let here = port(true);
        assert!(here.usable, "{here:?}");
        assert_eq!(here.gids[0].kind, "iWARP");
        let elsewhere = port(false);
        assert!(!elsewhere.usable);
        assert!(elsewhere
            .reason
            .unwrap()
            .contains("first network namespace"));
    }

    #[test]
    fn says_why_a_port_cannot_be_used() {
        let reason = |state: &str, gids: &[&str]| {
            let (_dir, devices) = tree(state, gids);
            assert!(!devices[0].ports[0].usable);
            devices[0].ports[0].reason.clone().unwrap()
        };
        assert!(reason("1: DOWN\n", &[EMPTY]).contains("DOWN"));
        assert!(reason("4: ACTIVE\n", &[EMPTY]).contains("no GID"));
        let gids = ["fd27:0000:0000:0000:0000:0000:0000:0001\n"];
        let (dir, _) = tree("4: ACTIVE\n", &gids);
        let elsewhere = all(&dir.0, &dir.0.join("empty"), &dir.0.join("none"), true);
        let port = elsewhere.iter().flat_map(|d| &d.ports).next().unwrap();
        assert!(port
            .reason
            .clone()
            .unwrap()
            .contains("another network namespace"));
    }

    #[test]
    fn names_an_adapter_with_too_few_memory_ranges() {
        let gids = ["fd27:0000:0000:0000:0000:0000:0000:0001\n"];
        let (dir, _) = tree("4: ACTIVE\n", &gids);
        let abilities = dir.0.join("abilities");
        fs::create_dir(&abilities).unwrap();
        let reason = |connections: &str| {
            let text = format!("send_sge 1\nconnections {connections}\nport 1 active\n");
            fs::write(abilities.join("rxe0"), text).unwrap();
            let devices = all(&dir.0, &dir.0.join("net"), &abilities, true);
            let port = devices.into_iter().flat_map(|d| d.ports).next().unwrap();
            assert_eq!(port.usable, port.reason.is_none());
            port.reason
        };
        assert_eq!(reason("yes"), None);
        assert_eq!(reason("no").as_deref(), Some(FEW_RANGES));
    }

    #[test]
    fn a_mapped_gid_is_an_ipv4_address() {
        let gid = Gid {
            index: 1,
            gid: "::ffff:10.27.0.1".parse().unwrap(),
            kind: "RoCE v2".into(),
        };
        assert_eq!(gid.ip().to_string(), "10.27.0.1");
    }
}
