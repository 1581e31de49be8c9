//! This machine's ends of tunnels, and what was lost between them and the others.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use perturb_dataplane::tunnels::{Passed, Tunnels, TunnelsError};
use tokio::time::sleep;

use super::{Host, LabError};

/// Packets that have passed the ends of hosts' tunnels, by the host's number.
pub type Passages = BTreeMap<u32, Passed>;
/// What other machines say of theirs, by name; nothing of one that does not.
pub type Accounts = BTreeMap<String, Option<Passages>>;

/// Nothing more is on its way when nothing has come for so long; how often that is looked at, and how long at most.
const REST: Duration = Duration::from_millis(100);
const LOOK: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_secs(2);

/// Ends of tunnels.
pub(super) struct Ends {
    tunnels: Tunnels,
    /// Whether the other machines' ends are there already.
    are_last: bool,
    /// By the host's number, the interface's index.
    all: BTreeMap<u32, u32>,
}

impl Ends {
    /// None yet.
    pub(super) fn new(are_last: bool) -> Result<Self, LabError> {
        Ok(Self {
            tunnels: Tunnels::new()?,
            are_last,
            all: BTreeMap::new(),
        })
    }

    /// Counts what passes one of a host, which is not up yet.
    pub(super) fn count(&mut self, host: &Host, interface: &str, index: u32) -> Result<(), LabError> {
        let count = || self.tunnels.count(interface, index, self.are_last);
        let failed = |source| LabError::Namespace {
            host: host.name(),
            source,
        };
        host.namespace.enter(count).map_err(failed)??;
        self.all.insert(host.number, index);
        Ok(())
    }

    /// Lets nothing more into them.
    pub(super) fn close(&mut self) -> Result<(), TunnelsError> {
        self.tunnels.close()
    }

    fn passed(&self) -> Result<Passages, TunnelsError> {
        let passed = |(&number, &index)| Ok((number, self.tunnels.passed(index)?));
        self.all.iter().map(passed).collect()
    }

    /// What has passed them, once nothing is on its way any more: the other ends are closed.
    pub(super) async fn settled(&self) -> Result<Passages, TunnelsError> {
        let begin = Instant::now();
        let (mut last, mut since) = (self.passed()?, begin);
        while since.elapsed() < REST && begin.elapsed() < PATIENCE {
            sleep(LOOK).await;
            let now = self.passed()?;
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        Ok(last)
    }
}

/// Packets that were lost between these ends and those of another machine, or came twice.
pub(super) fn lost(here: &Passages, there: &Passages) -> u64 {
    let lost = there.iter().map(|(number, far)| {
        let near = here.get(number).copied().unwrap_or_default();
        near.sent.abs_diff(far.received) + far.sent.abs_diff(near.received)
    });
    lost.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_either_way_and_what_comes_twice() {
        let ends = |passed: &[(u32, u64, u64)]| -> Passages {
            let passed = passed.iter();
            passed
                .map(|&(host, sent, received)| (host, Passed { sent, received }))
                .collect()
        };
        let here = ends(&[(3, 100, 50), (4, 7, 7), (5, 1, 0)]);
        assert_eq!(lost(&here, &ends(&[(3, 50, 100), (4, 7, 7)])), 0);
        assert_eq!(lost(&here, &ends(&[(3, 52, 99), (4, 6, 7)])), 2 + 1 + 1);
        assert_eq!(lost(&here, &ends(&[(5, 0, 0)])), 1);
    }
}
