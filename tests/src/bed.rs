//! A test bed: hosts in network namespaces of their own, joined by one veth pair.
//!
//! ```text
//! left:eth0 (10.78.0.1, fd78::1) ═══ right:eth0 (10.78.0.2, fd78::2)
//! ```
//!
//! Only tests send: neighbor tables are filled in, so that no ARP disturbs a measurement; interfaces are quiet (no IPv6
//! address generation), and what IPv6 reports of its groups is over before a bed is handed out. The namespaces have no name: they end with the last handle and process.

use std::{
    io::Write as _,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::{fd::AsRawFd as _, unix::process::CommandExt as _},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use nix::sched::{CloneFlags, setns};
use perturb_dataplane::namespace::Namespace;

/// Interface of each host.
pub const INTERFACE: &str = "eth0";
/// The one of a second wire.
pub const SECOND_INTERFACE: &str = "eth1";

/// A host of a bed.
#[derive(Debug)]
pub struct Host {
    /// Its network namespace.
    pub namespace: Namespace,
    /// Its IPv4 address.
    pub v4: Ipv4Addr,
    /// Its IPv6 address.
    pub v6: Ipv6Addr,
    /// Its hardware address.
    pub hardware: [u8; 6],
}

impl Host {
    fn new(number: u8) -> Result<Self> {
        Ok(Self {
            namespace: Namespace::create().context("making a network namespace (root is needed)")?,
            v4: Ipv4Addr::new(10, 78, 0, number),
            v6: Ipv6Addr::new(0xfd78, 0, 0, 0, 0, 0, 0, number.into()),
            hardware: [2, 0x74, 0x65, 0, 0, number],
        })
    }

    /// Its address of a family.
    #[must_use]
    pub fn address(&self, family: Family) -> IpAddr {
        match family {
            Family::V4 => self.v4.into(),
            Family::V6 => self.v6.into(),
        }
    }

    /// Runs work inside it, on a thread of its own. Sockets made there stay there.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        self.namespace.enter(work).context("entering a network namespace")
    }

    /// A command that will run in it.
    #[must_use]
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let namespace = self.namespace.as_raw_fd();
        let mut command = Command::new(program);
        let enter = move || {
            // SAFETY: the handle is open: `command` is run while its host lives.
            let namespace = unsafe { std::os::fd::BorrowedFd::borrow_raw(namespace) };
            Ok(setns(namespace, CloneFlags::CLONE_NEWNET)?)
        };
        // SAFETY: the closure makes one system call and neither allocates nor locks.
        unsafe { command.pre_exec(enter) };
        command.stdin(Stdio::null());
        command
    }

    /// Runs a command in it to its end, which must be a success; its standard output.
    pub fn run(&self, line: &str) -> Result<String> {
        let mut words = line.split_whitespace();
        let program = words.next().context("no command")?;
        let output = self
            .command(program)
            .args(words)
            .output()
            .with_context(|| format!("running `{line}`"))?;
        ensure!(
            output.status.success(),
            "`{line}`: {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs lines of `ip` in it.
    fn ip(&self, lines: &str) -> Result<()> {
        let mut child = self
            .command("ip")
            .args(["-batch", "-"])
            .stdin(Stdio::piped())
            .spawn()
            .context("running ip")?;
        child
            .stdin
            .take()
            .context("ip has no standard input")?
            .write_all(lines.as_bytes())?;
        ensure!(child.wait()?.success(), "ip refused one of:\n{lines}");
        Ok(())
    }

    /// Gives TCP large buffers.
    fn tcp(&self) -> Result<()> {
        for buffers in ["ipv4/tcp_rmem", "ipv4/tcp_wmem"] {
            self.sysctl(buffers, TCP_BUFFERS)?;
        }
        // What one measurement taught TCP must not help the next.
        self.sysctl("ipv4/tcp_no_metrics_save", "1")
    }

    /// Sets a value below /proc/sys/net, which is the namespace's own.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<()> {
        let path = format!("/proc/sys/net/{key}");
        self.enter(|| std::fs::write(&path, value))?
            .with_context(|| format!("writing {path}"))
    }
}

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Two hosts.
#[derive(Debug)]
pub struct Bed {
    /// The one that sends, in most tests; perturb is applied here.
    pub left: Host,
    /// The one that receives.
    pub right: Host,
}

/// Largest socket buffers of TCP: more than the delay-bandwidth product of 10 Gbit/s and 40 ms.
const TCP_BUFFERS: &str = "4096 131072 67108864";
/// Those that the kernel gives where memory abounds (tcp_init in net/ipv4/tcp.c): least, initial, largest.
const KERNELS_TCP_BUFFERS: [(&str, &str); 2] = [
    ("ipv4/tcp_rmem", "4096 131072 6291456"),
    ("ipv4/tcp_wmem", "4096 16384 4194304"),
];

impl Bed {
    /// Makes the hosts and joins them.
    pub fn new() -> Result<Self> {
        let bed = Self {
            left: Host::new(1)?,
            right: Host::new(2)?,
        };
        for host in [&bed.left, &bed.right] {
            for version in ["mldv1", "mldv2"] {
                let key = format!("ipv6/conf/default/{version}_unsolicited_report_interval");
                host.sysctl(&key, "1")?;
            }
        }
        bed.wire()?;
        Ok(bed)
    }

    /// Joins the hosts: also when the wire was deleted.
    pub fn wire(&self) -> Result<()> {
        // /proc/PID/fd of this process names the other namespace for `ip`.
        let right = format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            self.right.namespace.as_raw_fd()
        );
        self.left.ip(&format!(
            "link add {INTERFACE} mtu 1500 type veth peer name {INTERFACE} mtu 1500 netns {right}\n"
        ))?;
        self.configure(&self.left, &self.right)?;
        self.configure(&self.right, &self.left)?;
        self.await_carriers()?;
        // Two reports of each group, a tick or two apart.
        thread::sleep(Duration::from_millis(30));
        Ok(())
    }

    /// Sets the left host's interface up again, which was down.
    pub fn join(&self) -> Result<()> {
        let hardware = self.right.hardware.map(|byte| format!("{byte:02x}")).join(":");
        self.left.ip(&format!(
            "link set {INTERFACE} up\n\
             neighbor replace {} lladdr {hardware} dev {INTERFACE}\n",
            self.right.v4
        ))?;
        self.await_carriers()
    }

    fn configure(&self, host: &Host, peer: &Host) -> Result<()> {
        let hardware = |address: [u8; 6]| address.map(|byte| format!("{byte:02x}")).join(":");
        host.ip(&format!(
            "link set lo up\n\
             link set {INTERFACE} addrgenmode none address {}\n\
             link set {INTERFACE} up\n\
             address add {}/24 dev {INTERFACE}\n\
             address add {}/64 dev {INTERFACE} nodad\n\
             neighbor add {} lladdr {peer_hardware} dev {INTERFACE}\n\
             neighbor add {} lladdr {peer_hardware} dev {INTERFACE}\n",
            hardware(host.hardware),
            host.v4,
            host.v6,
            peer.v4,
            peer.v6,
            peer_hardware = hardware(peer.hardware),
        ))?;
        host.tcp()
    }

    /// Limits socket buffers of TCP as the kernel does by default.
    pub fn default_tcp_buffers(&self) -> Result<()> {
        for host in [&self.left, &self.right] {
            for (key, value) in KERNELS_TCP_BUFFERS {
                host.sysctl(key, value)?;
            }
        }
        Ok(())
    }

    /// Gives the right host one more address on its interface.
    pub fn address_of_right(&self, address: Ipv4Addr) -> Result<Ipv4Addr> {
        self.right
            .ip(&format!("address add {address}/24 dev {INTERFACE}\n"))?;
        let hardware = self.right.hardware.map(|byte| format!("{byte:02x}")).join(":");
        self.left.ip(&format!(
            "neighbor add {address} lladdr {hardware} dev {INTERFACE}\n"
        ))?;
        Ok(address)
    }

    /// As [`Self::address_of_right`], any address.
    pub fn second_address(&self) -> Result<Ipv4Addr> {
        self.address_of_right(Ipv4Addr::new(10, 78, 0, 3))
    }

    /// Joins the hosts by a second wire; the right host's address there.
    pub fn second_wire(&self) -> Result<Ipv4Addr> {
        self.second_wire_between(&self.left, &self.right)
    }

    /// A third host behind the right one, which forwards what the left one sends to it, from its [`SECOND_INTERFACE`]. There is no
    /// segmentation offload on the way.
    pub fn beyond(&self) -> Result<Host> {
        let mut beyond = Host::new(3)?;
        beyond.v4 = self.second_wire_between(&self.right, &beyond)?;
        self.right.sysctl("ipv4/ip_forward", "1")?;
        self.left
            .ip(&format!("route add {} via {}\n", beyond.v4, self.right.v4))?;
        beyond.ip("link set lo up\nroute add default via 10.79.0.1\n")?;
        beyond.tcp()?;
        self.offloads(false)?;
        for host in [&self.right, &beyond] {
            host.run(&format!("ethtool -K {SECOND_INTERFACE} tso off gso off gro off"))?;
        }
        Ok(beyond)
    }

    fn second_wire_between(&self, from: &Host, to: &Host) -> Result<Ipv4Addr> {
        let far = format!("/proc/{}/fd/{}", std::process::id(), to.namespace.as_raw_fd());
        from.ip(&format!(
            "link add {SECOND_INTERFACE} type veth peer name {SECOND_INTERFACE} netns {far}\n"
        ))?;
        for (host, number, peer) in [(from, 1, 2), (to, 2, 1)] {
            host.ip(&format!(
                "link set {SECOND_INTERFACE} addrgenmode none address 02:74:65:01:00:0{number}\n\
                 link set {SECOND_INTERFACE} up\n\
                 address add 10.79.0.{number}/24 dev {SECOND_INTERFACE}\n\
                 neighbor add 10.79.0.{peer} lladdr 02:74:65:01:00:0{peer} dev {SECOND_INTERFACE}\n"
            ))?;
        }
        self.await_carriers()?;
        Ok(Ipv4Addr::new(10, 79, 0, 2))
    }

    /// The kernel notices a little later that a wire has two ends.
    fn await_carriers(&self) -> Result<()> {
        const PATIENCE: Duration = Duration::from_secs(5);
        let start = Instant::now();
        for host in [&self.left, &self.right] {
            while host
                .run("ip -brief link show type veth")?
                .lines()
                .any(|line| !line.contains(" UP "))
            {
                ensure!(start.elapsed() < PATIENCE, "a wire has no carrier");
                thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }

    /// Makes the left host ask for the right one's hardware address before the next packet.
    pub fn forget_neighbor(&self) -> Result<()> {
        self.left
            .ip(&format!("neighbor del {} dev {INTERFACE}\n", self.right.v4))
    }

    /// Switches segmentation offloads of both ends off or on: without them each packet is a wire packet.
    pub fn offloads(&self, on: bool) -> Result<()> {
        let state = if on { "on" } else { "off" };
        for host in [&self.left, &self.right] {
            host.run(&format!(
                "ethtool -K {INTERFACE} tso {state} gso {state} gro {state}"
            ))?;
        }
        Ok(())
    }
}
