//! What TCP says of itself in a network namespace: /proc/net/netstat and /proc/net/snmp.
//!
//! Both files have pairs of lines, `Group: name …` and `Group: value …`.

use std::{fs, io, ops::Sub, path::PathBuf};

use serde::Serialize;

/// TCP's counters of a host since it was made, or over a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct TcpCounters {
    /// Retransmission time-outs (`TCPTimeouts`).
    pub(super) timeouts: u64,
    /// Tail loss probes (`TCPLossProbes`).
    pub(super) tail_loss_probes: u64,
    /// Segments sent again (`RetransSegs`).
    pub(super) retransmits: u64,
}

/// Why counters could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum CountersError {
    #[error("{}: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    /// This kernel does not count it.
    #[error("{}: has no counter {group}.{name}; this kernel is older than perturb supports", .path.display())]
    Missing {
        path: PathBuf,
        group: &'static str,
        name: &'static str,
    },
}

impl TcpCounters {
    /// Those of the calling thread's namespace.
    pub(super) fn here() -> Result<Self, CountersError> {
        let netstat = File::read("netstat")?;
        let snmp = File::read("snmp")?;
        Ok(Self {
            timeouts: netstat.counter("TcpExt", "TCPTimeouts")?,
            tail_loss_probes: netstat.counter("TcpExt", "TCPLossProbes")?,
            retransmits: snmp.counter("Tcp", "RetransSegs")?,
        })
    }
}

impl Sub for TcpCounters {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            timeouts: self.timeouts.saturating_sub(before.timeouts),
            tail_loss_probes: self.tail_loss_probes.saturating_sub(before.tail_loss_probes),
            retransmits: self.retransmits.saturating_sub(before.retransmits),
        }
    }
}

impl std::iter::Sum for TcpCounters {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            timeouts: sum.timeouts + one.timeouts,
            tail_loss_probes: sum.tail_loss_probes + one.tail_loss_probes,
            retransmits: sum.retransmits + one.retransmits,
        })
    }
}

struct File {
    path: PathBuf,
    text: String,
}

impl File {
    fn read(name: &str) -> Result<Self, CountersError> {
        let path = PathBuf::from("/proc/thread-self/net").join(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Self { path, text }),
            Err(source) => Err(CountersError::Read { path, source }),
        }
    }

    fn counter(&self, group: &'static str, name: &'static str) -> Result<u64, CountersError> {
        find(&self.text, group, name).ok_or_else(|| CountersError::Missing {
            path: self.path.clone(),
            group,
            name,
        })
    }
}

fn find(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text
        .lines()
        .filter_map(|line| line.split_once(": "))
        .filter(|(prefix, _)| *prefix == group);
    let (names, values) = (lines.next()?.1, lines.next()?.1);
    let place = names.split(' ').position(|word| word == name)?;
    values.split(' ').nth(place)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_name() {
        let text = "Ip: A B\nIp: 1 2\nTcp: MaxConn RetransSegs\nTcp: -1 7\n";
        assert_eq!(find(text, "Tcp", "RetransSegs"), Some(7));
        assert_eq!(find(text, "Ip", "B"), Some(2));
        assert_eq!(find(text, "Tcp", "MaxConn"), None, "not a count");
        assert_eq!(find(text, "Tcp", "B"), None);
        assert_eq!(find(text, "Udp", "B"), None);
    }

    #[test]
    fn this_kernel_has_them() {
        TcpCounters::here().unwrap();
    }
}
