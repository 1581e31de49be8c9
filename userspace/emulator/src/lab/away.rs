//! Private hosts on other machines, which tunnels join to this one, the core.
//!
//! ```text
//! core:  switch ══ eth0 ── bridge ── tunnel0 ══ VXLAN over UDP ══ eth0 of h3, on the other machine
//!                  '-- a namespace that stands in for h3 --'
//! ```
//!
//! What h3 sends is emulated where it leaves its stand-in's eth0, as a host's of this machine is where it leaves its own. So the core
//! folds one recursion for all hosts. Tunnels live in namespaces as all else here, and end with them.

use std::{
    ffi::{OsStr, OsString},
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket},
    os::{
        fd::{AsFd as _, AsRawFd as _, OwnedFd},
        unix::ffi::{OsStrExt as _, OsStringExt as _},
    },
    path::Path,
    thread,
    time::{Duration, Instant},
};

use nix::sys::{
    socket::{
        AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, connect, recv, send,
        setsockopt, socket, sockopt::ReceiveTimeout,
    },
    time::TimeVal,
};
use perturb_dataplane::netlink::{Netlink, Tunnel};
use rustix::net::sockopt::{ip_mtu, ipv6_mtu};
use serde::{Deserialize, Serialize};

use super::{Host, INTERFACE, LabError, PREFIXES, addresses, ends::Ends, hardware_address, inside, run};

/// UDP port of all tunnels, at both ends; that of other overlays (4789, 8472) may be taken.
pub const PORT: u16 = 14_789;
/// A stand-in's end of its tunnel.
const TUNNEL: &str = "tunnel0";
/// What joins it with the stand-in's eth0.
const BRIDGE: &str = "bridge0";
/// From where the core asks hosts on other machines; no host has this number.
const ASKS: u32 = 254;
/// Questions to such a host, and the time between them.
const QUESTIONS: usize = 51;
const PAUSE: Duration = Duration::from_millis(1);
/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(1);
/// Headers of IPv4 and ICMP, bytes.
const HEADERS: usize = 28;
/// The first byte of the questions, and of their answers (RFC 792).
const ECHO: u8 = 8;
const ECHO_REPLY: u8 = 0;

/// Why there is no way to another machine for tunnels.
#[derive(Debug, thiserror::Error)]
pub enum AwayError {
    /// It has no address.
    #[error("{machine} has no address for tunnels: {source}; /etc/hosts can give it one")]
    Address {
        /// The machine.
        machine: String,
        /// What the resolver says.
        source: io::Error,
    },
    /// It cannot be reached.
    #[error("no tunnel leads to {address}: {source}")]
    Route {
        /// The machine's address.
        address: IpAddr,
        /// What the kernel says.
        source: io::Error,
    },
    /// The profile's MTU does not fit.
    #[error(
        "packets of {mtu} bytes (`mtu`) do not fit into a tunnel to {address}, which takes {overhead} of the {way} bytes there: write at \
         most `mtu: {}B`, or raise the MTU of the machines' network", .way.saturating_sub(*.overhead)
    )]
    Mtu {
        /// The machine's address.
        address: IpAddr,
        /// The hosts' MTU.
        mtu: u32,
        /// What a tunnel adds.
        overhead: u32,
        /// The MTU on the way there.
        way: u32,
    },
    /// Nobody answers.
    #[error(
        "{host} on {machine} does not answer a packet of {bytes} bytes over its tunnel: {source}; a firewall may drop UDP port {PORT}, \
         or pings, or the way there takes less than this machine's interface"
    )]
    Silent {
        /// The host.
        host: String,
        /// Its machine.
        machine: String,
        /// How large the question was.
        bytes: usize,
        /// What came instead.
        source: io::Error,
    },
    /// The pacer joins hosts of this machine only.
    #[error("hosts on other machines need root here, and a pacer other than `switch`")]
    Switch,
}

/// The way between the core and another machine, seen from one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    /// This end's address.
    pub near: IpAddr,
    /// The other end's.
    pub far: IpAddr,
    /// VNIs of its hosts' tunnels: this and the host's number.
    pub id: u32,
}

impl Way {
    /// The way to the machine of a name.
    ///
    /// # Errors
    /// If the name has no address, or nothing leads there.
    pub fn to(machine: &str, id: u32) -> Result<Self, AwayError> {
        let address = |source| AwayError::Address {
            machine: machine.to_owned(),
            source,
        };
        let found = (machine, 0).to_socket_addrs().map_err(address)?;
        let mut refused = address(io::ErrorKind::NotFound.into());
        // The first that something leads to, as ssh takes it.
        for far in found.map(|address| address.ip()) {
            match socket_to(far).and_then(|socket| socket.local_addr()) {
                Ok(near) => {
                    let near = near.ip();
                    return Ok(Self { near, far, id });
                }
                Err(source) => refused = AwayError::Route { address: far, source },
            }
        }
        Err(refused)
    }

    /// The same from its other end.
    #[must_use]
    pub const fn turned(self) -> Self {
        Self {
            near: self.far,
            far: self.near,
            ..self
        }
    }

    /// Whether both ends are the same machine.
    #[must_use]
    pub fn is_here(&self) -> bool {
        // Debian gives a machine's own name 127.0.1.1.
        self.near == self.far || self.far.is_loopback()
    }

    /// Bytes that a tunnel adds: the headers of IP, UDP, VXLAN and the inner Ethernet.
    const fn overhead(&self) -> u32 {
        if self.far.is_ipv4() { 50 } else { 70 }
    }

    /// The largest MTU of hosts whose packets go this way whole, if `mtu` is not.
    ///
    /// # Errors
    /// If nothing leads there.
    pub fn fits(&self, mtu: u32) -> Result<u32, AwayError> {
        let ask = |socket: UdpSocket| match self.far {
            IpAddr::V4(_) => Ok(ip_mtu(&socket)?),
            IpAddr::V6(_) => Ok(ipv6_mtu(&socket)?),
        };
        let way: u32 = socket_to(self.far)
            .and_then(ask)
            .map_err(|source| AwayError::Route {
                address: self.far,
                source,
            })?;
        Ok(mtu.min(way.saturating_sub(self.overhead())))
    }

    /// Refuses an MTU that does not fit.
    ///
    /// # Errors
    /// Then, with both figures.
    pub fn must_fit(&self, mtu: u32) -> Result<(), AwayError> {
        let fits = self.fits(mtu)?;
        if fits < mtu {
            return Err(AwayError::Mtu {
                address: self.far,
                mtu,
                overhead: self.overhead(),
                way: fits + self.overhead(),
            });
        }
        Ok(())
    }

    /// Makes this end of a host's tunnel.
    pub(super) fn dig(&self, host: &Host, name: &str, index: u32, mtu: u32) -> Result<(), LabError> {
        Ok(Netlink::open()?.add_tunnel(&Tunnel {
            name,
            index,
            namespace: host.namespace.as_fd(),
            id: self.id + host.number,
            ends: (self.near, self.far),
            port: PORT,
            mtu,
        })?)
    }
}

/// A socket whose packets would go there.
fn socket_to(far: IpAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = match far {
        IpAddr::V4(_) => [0; 4].into(),
        IpAddr::V6(_) => [0; 16].into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(SocketAddr::new(far, PORT))?;
    Ok(socket)
}

/// Hosts that are on another machine.
#[derive(Clone, Debug)]
pub struct Away {
    /// The machine's name.
    pub machine: String,
    /// Their numbers.
    pub hosts: Vec<u32>,
    /// The way there.
    pub way: Way,
    /// For each of them what runs a command there: its last word wants one behind it that a shell reads.
    pub commands: Vec<Vec<String>>,
}

/// What runs a command where `words` lead, whose last one wants a word that a shell reads, and in that a shell's line. It runs in this
/// directory, if there is one of its name there.
pub(super) fn quoted(words: Vec<String>, directory: &Path, command: &[OsString]) -> Vec<OsString> {
    let quote = |word: &OsStr| {
        let bytes = word
            .as_bytes()
            .split(|byte| *byte == b'\'')
            .collect::<Vec<_>>()
            .join(&br"'\''"[..]);
        OsString::from_vec([b"'", &bytes[..], b"'"].concat())
    };
    let mut line = OsString::from("cd ");
    line.push(quote(directory.as_os_str()));
    line.push(" 2>/dev/null; exec");
    for word in command {
        line.push(" ");
        line.push(quote(word));
    }
    let mut words: Vec<OsString> = words.into_iter().map(Into::into).collect();
    if let Some(last) = words.last_mut() {
        last.push(" ");
        last.push(quote(&line));
    }
    words
}

/// Makes a stand-in of a host's namespace.
pub(super) fn stand_in(host: &Host, way: &Way, mtu: u32, ends: &mut Ends) -> Result<(), LabError> {
    way.dig(host, TUNNEL, host.tunnel_index(), mtu)?;
    ends.count(host, TUNNEL, host.tunnel_index())?;
    let name = host.name();
    inside(
        || name.clone(),
        &host.namespace,
        |netlink| {
            netlink.set_up("lo")?;
            for device in [INTERFACE, TUNNEL] {
                netlink.set_quiet(device)?;
                netlink.set_up(device)?;
            }
            // The address of the host itself is at the other end.
            let mut address = hardware_address(host.number);
            address[3] = 1;
            netlink.set_hardware_address(INTERFACE, address)
        },
    )?;
    Ok(())
}

/// How long a packet takes to hosts of a machine, one way: half of the median round trip to the first. Each has to answer a full packet.
pub(super) fn trip(hosts: &[&Host], away: &Away, mtu: u32) -> Result<Duration, LabError> {
    let mut trip = None;
    for host in hosts {
        let failed = |source| LabError::Namespace {
            host: host.name(),
            source,
        };
        let ask = || -> Result<Option<Duration>, LabError> {
            run::let_everyone_ping().map_err(failed)?;
            let mut netlink = Netlink::open()?;
            let tunnel = netlink.link(TUNNEL)?.map_or(0, |link| link.index);
            let (from, _) = addresses(ASKS);
            netlink.add_address(tunnel, from.into(), PREFIXES.0)?;
            let asked = asked(host, away, mtu as usize, trip.is_none());
            netlink.remove_address(tunnel, from.into(), PREFIXES.0)?;
            Ok(asked?)
        };
        let asked = host.namespace.enter(ask).map_err(failed)??;
        trip = trip.or(asked);
    }
    Ok(trip.unwrap_or_default())
}

/// Asks a host whether it gets full packets, and, if that is to be measured, how long small ones take one way.
fn asked(host: &Host, away: &Away, mtu: usize, measures: bool) -> Result<Option<Duration>, AwayError> {
    let silent = |bytes| {
        move |source| AwayError::Silent {
            host: host.name(),
            machine: away.machine.clone(),
            bytes,
            source,
        }
    };
    let socket = echo_socket(host).map_err(silent(0))?;
    // The first one asks for addresses, too.
    answered(&socket, HEADERS, 0).map_err(silent(HEADERS))?;
    answered(&socket, mtu, 1).map_err(silent(mtu))?;
    if !measures {
        return Ok(None);
    }
    let mut trips = Vec::with_capacity(QUESTIONS);
    for number in 2..2 + QUESTIONS as u16 {
        thread::sleep(PAUSE);
        trips.push(answered(&socket, HEADERS, number).map_err(silent(HEADERS))?);
    }
    trips.sort_unstable();
    Ok(trips.get(QUESTIONS / 2).map(|round| *round / 2))
}

fn echo_socket(host: &Host) -> io::Result<OwnedFd> {
    let socket = socket(
        AddressFamily::Inet,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::Icmp,
    )?;
    let answer = TimeVal::new(ANSWER.as_secs().cast_signed(), 0);
    setsockopt(&socket, ReceiveTimeout, &answer)?;
    let (to, _) = addresses(host.number);
    connect(
        socket.as_raw_fd(),
        &SockaddrIn::from(std::net::SocketAddrV4::new(to, 0)),
    )?;
    Ok(socket)
}

/// [`echo`], which a network may lose now and then.
fn answered(socket: &OwnedFd, bytes: usize, number: u16) -> io::Result<Duration> {
    const TRIES: usize = 3;
    for _ in 0..TRIES {
        match echo(socket, bytes, number) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => return done,
        }
    }
    let seconds = ANSWER.as_secs();
    let what = format!("no answer came within {seconds} s, {TRIES} times");
    Err(io::Error::new(io::ErrorKind::TimedOut, what))
}

/// Sends an IP packet of that size, and waits for its answer: how long that took.
fn echo(socket: &OwnedFd, bytes: usize, number: u16) -> io::Result<Duration> {
    let mut question = vec![0; bytes.max(HEADERS) - HEADERS + 8];
    let [high, low] = number.to_be_bytes();
    question[0] = ECHO;
    question[6..8].copy_from_slice(&[high, low]);
    let begin = Instant::now();
    send(socket.as_raw_fd(), &question, MsgFlags::empty())?;
    let mut answer = vec![0; question.len()];
    loop {
        let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        if length == question.len() && answer[0] == ECHO_REPLY && answer[6..8] == [high, low] {
            return Ok(begin.elapsed());
        }
        if begin.elapsed() > ANSWER {
            return Err(io::ErrorKind::WouldBlock.into());
        }
    }
}

/// Joins a stand-in's eth0 with its tunnel.
pub(super) fn bridge(host: &Host, mtu: u32) -> Result<(), LabError> {
    inside(
        || host.name(),
        &host.namespace,
        |netlink| {
            netlink.add_bridge(BRIDGE, mtu)?;
            netlink.set_quiet(BRIDGE)?;
            let bridge = netlink.link(BRIDGE)?.map_or(0, |link| link.index);
            for device in [INTERFACE, TUNNEL] {
                netlink.set_controller(device, bridge)?;
            }
            netlink.set_up(BRIDGE)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_comes_through_both_shells_as_it_was() {
        let command = ["printf", "%s|", "it's", "a  b", "$HOME", ""].map(OsString::from);
        // The first shell is that which ssh starts, the second the agent's.
        let words = ["sh", "-c", "exec sh -c"].map(str::to_owned).to_vec();
        let run = |directory: &str, command: &[OsString]| {
            let words = quoted(words.clone(), Path::new(directory), command);
            let output = std::process::Command::new(&words[0]).args(&words[1..]).output();
            String::from_utf8_lossy(&output.unwrap().stdout).into_owned()
        };
        assert_eq!(run("/no/such 'place", &command), "it's|a  b|$HOME||");
        assert_eq!(run("/dev", &["pwd".into()]), "/dev\n");
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_figures() {
        let here = IpAddr::from([127, 0, 0, 1]);
        let way = Way {
            near: here,
            far: here,
            id: 0x100,
        };
        let fits = way.fits(u32::MAX).unwrap();
        way.must_fit(fits).unwrap();
        let text = way.must_fit(fits + 1).unwrap_err().to_string();
        assert!(
            text.contains(&format!("`mtu: {fits}B`")) && text.contains("takes 50 of"),
            "{text}"
        );
        assert!(way.is_here() && way.turned() == way);
        assert!(matches!(
            Way::to("no.such.host.invalid", 0),
            Err(AwayError::Address { .. })
        ));
    }
}
