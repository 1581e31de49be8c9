//! The ssh session in which a command is given: a profile may shape it, or cut it off.

use std::{
    env, fs,
    net::{IpAddr, Ipv6Addr},
};

use nix::ifaddrs::getifaddrs;
use perturb_common::abi::{DIMENSIONS, Direction, NONE};
use perturb_emulator::prepared::Prepared;
use perturb_profile::{Class, Treatment};

/// Set by sshd: the client's address and port, the server's address and port.
const VARIABLE: &str = "SSH_CONNECTION";
const TCP: u32 = 6;

/// A TCP connection of sshd on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Connection {
    client: (IpAddr, u16),
    server: (IpAddr, u16),
}

impl Connection {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let mut end = || Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?));
        Some(Self {
            client: end()?,
            server: end()?,
        })
    }

    /// The one of this process, or of one that began it: sudo takes the variable away.
    fn current() -> Option<Self> {
        if let Some(text) = env::var_os(VARIABLE) {
            return Self::parse(&text.to_string_lossy());
        }
        let mut pid = parent(std::process::id())?;
        while pid > 1 {
            let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
            let prefix = format!("{VARIABLE}=");
            let found = environment
                .split(|byte| *byte == 0)
                .find_map(|entry| entry.strip_prefix(prefix.as_bytes()));
            if let Some(text) = found {
                return Self::parse(&String::from_utf8_lossy(text));
            }
            pid = parent(pid)?;
        }
        None
    }

    /// Its packets of a direction, as classifiers see them.
    fn key(self, direction: Direction) -> [(u64, u64); DIMENSIONS as usize] {
        let (source, destination) = match direction {
            Direction::Egress => (self.server, self.client),
            Direction::Ingress => (self.client, self.server),
        };
        let address = |address: IpAddr| {
            let bits = mapped(address).to_bits();
            ((bits >> 64) as u64, bits as u64)
        };
        let small = |value: u32| (0, u64::from(value));
        let ethertype = match self.client.0.to_canonical() {
            IpAddr::V4(_) => 0x0800,
            IpAddr::V6(_) => 0x86dd,
        };
        [
            address(source.0),
            address(destination.0),
            small(source.1.into()),
            small(destination.1.into()),
            small(ethertype),
            small(TCP),
            small(0),
            small(0),
            // Which cgroup sshd made it in, nobody knows here.
            small(0),
        ]
    }
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// The parent of a process: the second field after the name, which is in brackets and may hold anything.
fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(1)?.parse().ok()
}

/// Whether packets to or from this address of this host cross one of the interfaces; so, too, if no interface has it.
fn crosses(address: IpAddr, interfaces: &[String]) -> bool {
    let Ok(addresses) = getifaddrs() else { return true };
    let owners: Vec<String> = addresses
        .filter(|other| {
            let other = other.address.as_ref().and_then(|other| {
                let v4 = other.as_sockaddr_in().map(|other| IpAddr::V4(other.ip()));
                v4.or_else(|| other.as_sockaddr_in6().map(|other| IpAddr::V6(other.ip())))
            });
            other == Some(address.to_canonical())
        })
        .map(|other| other.interface_name)
        .collect();
    owners.is_empty() || owners.iter().any(|owner| interfaces.contains(owner))
}

/// What a profile on these interfaces would do to the ssh session of whoever asks for it, if anything.
pub(super) fn warning(prepared: &Prepared, interfaces: &[String]) -> Option<String> {
    let connection = Connection::current()?;
    if !crosses(connection.server.0, interfaces) {
        return None;
    }
    let shaped = [
        (Direction::Egress, "what you see"),
        (Direction::Ingress, "what you type"),
    ]
    .into_iter()
    .zip(&prepared.tables.classifier)
    .filter_map(|((direction, what), classifier)| {
        let class = classifier.classify(connection.key(direction));
        if class == NONE {
            return None;
        }
        let name = prepared.tables.class_names.get(class as usize)?;
        let class = prepared
            .profile
            .classes
            .iter()
            .find(|class| class.name.as_str() == name);
        let fate = match class.map(|class| fate(prepared, class, direction)) {
            Some(fate) => fate?,
            // Of a topology, which has classes for its hosts.
            None => String::new(),
        };
        Some(format!("class {name} takes {what}{fate}"))
    });
    let shaped: Vec<String> = shaped.collect();
    (!shaped.is_empty()).then(|| {
        format!(
            "your ssh session ({}:{} to {}:{}) is in the profile: {}; to leave it alone put a class `match: {{ protocol: \
             tcp, port: {} }}, bypass: true` first, or try with `--confirm 60s`, which undoes it if you cannot answer",
            connection.client.0,
            connection.client.1,
            connection.server.0,
            connection.server.1,
            shaped.join(", "),
            connection.server.1
        )
    })
}

/// What happens to packets of a class; `None`: nothing.
fn fate(prepared: &Prepared, class: &Class, direction: Direction) -> Option<String> {
    if class.treatment == Treatment::Bypass {
        return None;
    }
    let path = class.paths()[direction as usize]?;
    let servers: Vec<&str> = path
        .iter()
        .filter_map(|id| Some(prepared.profile.server(*id)?.0.as_str()))
        .collect();
    Some(if servers.is_empty() {
        ", which costs overhead".into()
    } else {
        format!(" through {}", servers.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::{Connection, parent};

    #[test]
    fn connections_are_read_as_sshd_writes_them() {
        let read = Connection::parse("192.0.2.7 50022 198.51.100.1 22");
        let Some(read) = read else { panic!("not read") };
        assert_eq!((read.client.1, read.server.1), (50022, 22));
        assert_eq!(Connection::parse("192.0.2.7 50022"), None);
        assert_eq!(Connection::parse(""), None);
    }

    #[test]
    fn a_process_has_a_parent() {
        assert_eq!(
            parent(std::process::id()),
            Some(std::os::unix::process::parent_id())
        );
    }
}
