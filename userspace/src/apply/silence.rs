//! Warns of an emulation that sees nothing of its interfaces' traffic: something answers for it before perturb is asked, or
//! it passes by (docs/hop.md).

use std::time::{Duration, Instant};

use perturb_dataplane::netlink::Netlink;
use perturb_emulator::{registry::Record, running::Running, status::Report};

/// How long to look, and how many packets the interface must have carried meanwhile.
const PATIENCE: Duration = Duration::from_secs(3);
const TRAFFIC: u64 = 50;

/// Looks until a packet has been seen, or the warning has been given.
pub(super) struct Silence {
    began: Instant,
    /// What an interface had carried before.
    carried: Vec<(u32, u64)>,
    over: bool,
}

impl Silence {
    /// From now on.
    pub(super) fn begin(running: &Running) -> anyhow::Result<Self> {
        Ok(Self {
            began: Instant::now(),
            carried: carried(running)?,
            over: false,
        })
    }

    /// Looks again.
    pub(super) fn look(&mut self, running: &Running) -> anyhow::Result<()> {
        if self.over || self.began.elapsed() < PATIENCE {
            return Ok(());
        }
        let Some(record) = Record::read(&running.record.id)? else {
            return Ok(());
        };
        let Some(report) = Report::of(&record)? else {
            return Ok(());
        };
        if report.seen() != 0 {
            self.over = true;
            return Ok(());
        }
        for (index, packets) in carried(running)? {
            let before = self.carried.iter().find(|(other, _)| *other == index);
            let since = packets.saturating_sub(before.map_or(packets, |(_, packets)| *packets));
            let name = record
                .interfaces
                .iter()
                .find(|interface| interface.index == index);
            if let Some(interface) = name
                && since >= TRAFFIC
            {
                self.over = true;
                log::warn!(
                    "{} has carried {since} packets since the emulation began, and perturb has seen none: \
                     a program or filter before it answers for them, or they pass by the kernel's hooks; see `bpftool \
                     net show dev {}` and `tc filter show dev {} egress`",
                    interface.name,
                    interface.name,
                    interface.name
                );
            }
        }
        Ok(())
    }
}

/// Index and packets, both ways, of the interfaces that are emulated.
fn carried(running: &Running) -> anyhow::Result<Vec<(u32, u64)>> {
    let ours = |index| {
        running
            .record
            .interfaces
            .iter()
            .any(|interface| interface.index == index)
    };
    let links = Netlink::open()?.links()?.into_iter();
    Ok(links
        .filter(|link| ours(link.index))
        .map(|link| (link.index, link.packets))
        .collect())
}
