// SPDX-License-Identifier: GPL-2.0

//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{
    Args,
    CommandFactory,
    Parser,
    Subcommand,
    ValueEnum, //
};

use crate::filter::{
    Network,
    StateSet, //
};
use crate::netlink::Messages;
use crate::out::When;

/// Shows, checks and sets up SDP: sockets, counters, devices, settings.
///
/// Exit status: 0 done, 1 something is wrong (or could not be done), 2 a bad command line, 3 the
/// module is not loaded, 4 no permission, 5 the loaded module is too old.
#[derive(Parser)]
#[command(name = "sdpctl", version)]
pub(crate) struct Cli {
    /// Print JSON, as Documentation/sdpctl.schema.json describes it
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Look into the network namespace NAME (as `ip netns` names it)
    #[arg(short = 'N', long, global = true, value_name = "NAME")]
    pub(crate) netns: Option<String>,
    /// When to use colours
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: When,
    #[command(flatten)]
    pub(crate) messages: Messages,
    /// Look for the files of /proc/sys and /sys below a folder
    #[arg(long, global = true, hide = true, value_name = "FOLDER")]
    pub(crate) files: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Parses the command line; an invalid one ends the program.
    pub(crate) fn from_args() -> Self {
        let cli = Self::parse();
        if let Command::Stat(args) = &cli.command {
            if let Some(mistake) = args.mistake() {
                let mut command = Self::command();
                command.build();
                let stat = command.find_subcommand_mut("stat");
                stat.expect("there is such a command")
                    .error(ErrorKind::ArgumentConflict, mistake)
                    .exit();
            }
        }
        cli
    }
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show sockets
    Ss(SsArgs),
    /// Show counters
    Stat(StatArgs),
    /// Show the RDMA devices, and whether SDP can use their ports
    Dev,
    /// Check the module, the RDMA devices, the limits and a peer, and say how to fix each problem
    Check(CheckArgs),
    /// Show connections as they are established, are closed or fail
    Events(EventsArgs),
    /// Show the module's parameters and the sysctls of the network namespace
    Get(GetArgs),
    /// Set parameters of the module, and sysctls of the network namespace
    Set(SetArgs),
    /// Start a program, and replace its TCP sockets by SDP sockets
    Run(RunArgs),
    /// Make the kernel open the TCP sockets of selected programs as SDP sockets; without a
    /// command, show the rules
    Steer {
        #[command(subcommand)]
        command: Option<SteerCommand>,
    },
    /// Measure latency and throughput to a peer, for each mode (zcopy_mode) and several sizes
    Bench(BenchArgs),
    /// Show all details of a connection
    Conn(ConnArgs),
    /// Show the connections and their transfer rates, and update them at each interval
    Top(TopArgs),
    /// Create an archive for a problem report
    Debug(DebugArgs),
    /// Send attributes as they are, for tests of what the module refuses
    #[command(hide = true)]
    Raw(RawArgs),
    /// Write the man pages and the shells' completions into a folder
    #[command(hide = true)]
    Generate(GenerateArgs),
}

#[derive(Args)]
pub(crate) struct SsArgs {
    /// Show listening sockets too, and those that are only bound
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Show only listening sockets
    #[arg(short, long, conflicts_with_all = ["all", "state"])]
    pub(crate) listening: bool,
    /// Show the owner, the inode, the namespace and the options
    #[arg(short, long)]
    pub(crate) extended: bool,
    /// Show what the connection knows: credits, receives, memory
    #[arg(short, long)]
    pub(crate) info: bool,
    /// Show the processes that have the socket
    #[arg(short, long)]
    pub(crate) processes: bool,
    /// Show only IPv4 sockets
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    pub(crate) ipv4: bool,
    /// Show only IPv6 sockets
    #[arg(short = '6', long)]
    pub(crate) ipv6: bool,
    /// Show no headline
    #[arg(short = 'H', long)]
    pub(crate) no_header: bool,
    /// Show how many sockets there are in which state, and nothing else
    #[arg(short, long)]
    pub(crate) summary: bool,
    /// Has no effect; accepted because ss has it
    #[arg(short, long)]
    pub(crate) tcp: bool,
    /// Has no effect; accepted because ss has it: ports are always numbers
    #[arg(short, long)]
    pub(crate) numeric: bool,
    /// Show numbers of bytes as they are, not in units
    #[arg(long)]
    pub(crate) bytes: bool,
    /// Show only sockets in these states: names with commas between them, or all, connected,
    /// synchronized
    #[arg(long, value_name = "STATE")]
    pub(crate) state: Option<StateSet>,
    /// Show only sockets with this local address, or a network such as 10.0.0.0/8
    #[arg(long, value_name = "ADDR[/BITS]")]
    pub(crate) src: Option<Network>,
    /// Show only sockets whose peer has this address, or one of this network
    #[arg(long, value_name = "ADDR[/BITS]")]
    pub(crate) dst: Option<Network>,
    /// Show only sockets with this local port
    #[arg(long, value_name = "PORT")]
    pub(crate) sport: Option<u16>,
    /// Show only sockets whose peer has this port
    #[arg(long, value_name = "PORT")]
    pub(crate) dport: Option<u16>,
    /// Show only sockets of the process with this number or name
    #[arg(long, value_name = "PID|NAME")]
    pub(crate) process: Option<String>,
    /// Show only sockets that match this, written as for ss: state established dst 10.0.0.0/8 and sport = :80
    #[arg(value_name = "FILTER")]
    pub(crate) filter: Vec<String>,
}

// Without `args_conflicts_with_subcommands`: with it, clap does not recognize a subcommand after an
// option.
#[derive(Args)]
#[command(
    override_usage = "sdpctl stat [OPTIONS] [NAME]...\n       sdpctl stat [OPTIONS] <COMMAND>"
)]
pub(crate) struct StatArgs {
    #[command(subcommand)]
    pub(crate) command: Option<StatCommand>,
    #[command(flatten)]
    pub(crate) show: StatShow,
}

#[derive(Subcommand)]
pub(crate) enum StatCommand {
    /// Show what was counted since the last reset, or since the module was loaded
    Show(StatShow),
    /// Restart the counters for this user only; they do not change for other users
    Reset,
    /// Show, at each interval, how much each counter has increased
    Watch(StatWatch),
    /// Show histograms of all present connections: sizes of sends and durations of adverts
    Histograms,
}

#[derive(Args)]
pub(crate) struct StatShow {
    /// Show counters that are 0, too
    #[arg(short, long)]
    pub(crate) zeros: bool,
    /// Show the values since the module was loaded, and ignore `stat reset`
    #[arg(short, long)]
    pub(crate) absolute: bool,
    /// Explain each counter
    #[arg(short, long)]
    pub(crate) explain: bool,
    /// Show only counters whose name has one of these in it
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
}

impl StatArgs {
    /// A command line that clap accepts but that was hardly intended: an option that would be
    /// ignored, or a command that would be taken for a filter.
    fn mistake(&self) -> Option<String> {
        let show = &self.show;
        if self.command.is_some() {
            let alone = !show.zeros && !show.absolute && !show.explain && show.names.is_empty();
            return (!alone).then(|| {
                "a command of `stat` comes before its names and options: only --json, -N and --color \
                 may stand between"
                    .into()
            });
        }
        let is_command = |name: &&String| StatCommand::has_subcommand(name);
        let name = show.names.iter().find(is_command)?;
        Some(format!(
            "`{name}` is a command of `stat` and comes before names; `stat show {name}` shows \
             counters with that name"
        ))
    }
}

#[derive(Args)]
pub(crate) struct StatWatch {
    /// Seconds between two updates
    #[arg(short, long, default_value_t = 1.0, value_parser = crate::units::seconds)]
    pub(crate) interval: f64,
    /// End after this number of updates
    #[arg(short, long)]
    pub(crate) count: Option<u64>,
    /// Show only counters whose name has one of these in it
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
}

#[derive(Args)]
pub(crate) struct CheckArgs {
    /// A server to connect to by SDP, which must listen with SDP, and by TCP, to tell its kind
    #[arg(value_name = "HOST:PORT")]
    pub(crate) peer: Option<String>,
    /// Seconds to wait for it, at each of its addresses
    #[arg(short, long, default_value_t = 5.0, value_parser = crate::units::seconds)]
    pub(crate) timeout: f64,
}

#[derive(Args)]
pub(crate) struct EventsArgs {
    /// End after this number of events
    #[arg(short, long)]
    pub(crate) count: Option<u64>,
    /// If a connection cannot be made by SDP, also connect to the peer's TCP port, and show whether
    /// it takes connections
    #[arg(short, long)]
    pub(crate) probe_tcp: bool,
}

#[derive(Args)]
pub(crate) struct GetArgs {
    /// Print the values alone, as the kernel has them
    #[arg(short = 'n', long)]
    pub(crate) values: bool,
    /// The settings, as `sdp_zcopy_mode` or `net.sdp.zcopy_mode`; without any, all
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
}

#[derive(Args)]
pub(crate) struct SetArgs {
    /// Settings and their new values; sizes may have units, such as 64K or 1M. If a value is
    /// invalid, no setting is changed; if the kernel refuses a value, the settings before it stay
    /// changed
    #[arg(value_name = "NAME=VALUE", required = true)]
    pub(crate) assignments: Vec<String>,
}

#[derive(Args)]
pub(crate) struct RunArgs {
    /// Report an error instead of using TCP, if the rules select SDP for a socket
    #[arg(short, long)]
    pub(crate) require: bool,
    /// Report on the standard error whether each socket uses SDP or TCP, and, if a server refuses a
    /// connection, whether its port of the other kind takes connections
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// A file of rules in the format of OFED's libsdp.conf; without it, every TCP socket becomes
    /// an SDP socket
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The path of libsdp.so, if the library is not in its usual folder
    #[arg(long, value_name = "FILE")]
    pub(crate) library: Option<PathBuf>,
    /// The program and its arguments
    #[arg(
        value_name = "PROGRAM",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) command: Vec<OsString>,
}

#[derive(Subcommand)]
pub(crate) enum SteerCommand {
    /// Add a rule, and print its number
    Add(SteerAddArgs),
    /// Remove rules; sockets that are open stay as they are
    Del(SteerDelArgs),
}

#[derive(Args)]
#[group(required = true, multiple = true)]
pub(crate) struct SteerAddArgs {
    /// Apply the rule to programs with this name (/proc/PID/comm, the first 15 bytes)
    #[arg(short, long, value_name = "NAME")]
    pub(crate) program: Option<String>,
    /// Only for processes in this control group, and in those below it
    #[arg(short, long, value_name = "FOLDER")]
    pub(crate) cgroup: Option<PathBuf>,
    /// For all programs of the machine
    #[arg(short, long, conflicts_with_all = ["program", "cgroup"])]
    pub(crate) all: bool,
}

#[derive(Args)]
#[group(required = true)]
pub(crate) struct SteerDelArgs {
    /// The numbers of the rules to remove
    #[arg(value_name = "RULE")]
    pub(crate) numbers: Vec<u32>,
    /// All rules
    #[arg(short, long)]
    pub(crate) all: bool,
}

#[derive(Args)]
pub(crate) struct BenchArgs {
    /// Serve the clients of this measurement until the command is stopped
    #[arg(short, long, conflicts_with_all = ["seconds", "sizes", "modes"])]
    pub(crate) listen: bool,
    /// End after this number of clients
    #[arg(short, long, requires = "listen")]
    pub(crate) count: Option<u64>,
    /// Seconds for each figure
    #[arg(short, long, default_value_t = 0.5, value_parser = crate::units::seconds)]
    pub(crate) seconds: f64,
    /// Sizes of the messages, with commas between them, as 64,4K
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = crate::units::message_bytes,
          default_value = "64,4K,64K,1M")]
    pub(crate) sizes: Vec<u64>,
    /// Ways of sending, with commas between them; all of them without this
    #[arg(long, value_name = "MODE", value_delimiter = ',')]
    pub(crate) modes: Vec<String>,
    /// The peer that listens; with --listen, the address to listen at
    #[arg(value_name = "HOST[:PORT]")]
    pub(crate) peer: Option<String>,
}

#[derive(Args)]
pub(crate) struct ConnArgs {
    /// The socket's cookie, or else its inode, or else its local port
    #[arg(value_name = "NUMBER")]
    pub(crate) number: u64,
}

/// Sort key of `top`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    Sent,
    Received,
    Memory,
    Address,
}

impl Sort {
    /// The sort key for a key press in `top`.
    pub(crate) fn of_key(key: u8) -> Option<Self> {
        Some(match key {
            b't' => Self::Sent,
            b'r' => Self::Received,
            b'm' => Self::Memory,
            b'a' => Self::Address,
            _ => return None,
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Received => "received",
            Self::Memory => "memory",
            Self::Address => "address",
        }
    }
}

#[derive(Args)]
pub(crate) struct TopArgs {
    /// Seconds between two updates
    #[arg(short, long, default_value_t = 1.0, value_parser = crate::units::seconds)]
    pub(crate) interval: f64,
    /// End after this number of updates
    #[arg(short, long)]
    pub(crate) count: Option<u64>,
    /// Sort key; keys change it while the command runs
    #[arg(short, long, default_value = "sent")]
    pub(crate) sort: Sort,
}

#[derive(Args)]
pub(crate) struct DebugArgs {
    /// The archive, a file that does not exist yet, or `-` for the standard output; by default
    /// sdpctl-debug-TIME.tar
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct RawArgs {
    /// The number of the command
    pub(crate) cmd: u8,
    /// Attributes: a number, and bytes as hexadecimal digits
    #[arg(value_name = "NUMBER=BYTES", value_parser = crate::netlink::raw_attr)]
    pub(crate) attrs: Vec<(u16, Vec<u8>)>,
}

#[derive(Args)]
pub(crate) struct GenerateArgs {
    /// The folder; there will be man/ and completions/ in it
    pub(crate) folder: PathBuf,
}
