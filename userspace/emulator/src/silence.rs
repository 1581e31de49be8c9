//! Warns of an emulation that sees nothing of its interfaces' traffic: something answers for it before perturb is asked, or
//! it passes by (docs/hop.md).

use std::time::{Duration, Instant};

use crate::running::Running;

/// How long to look, and how many packets the interface must have carried meanwhile.
const PATIENCE: Duration = Duration::from_secs(3);
const TRAFFIC: u64 = 50;

/// Looks until a packet has been seen, or the warning has been given.
pub(crate) struct Silence {
    began: Instant,
    /// What an interface had carried before.
    carried: Vec<(u32, u64)>,
    over: bool,
}

impl Silence {
    /// From now on.
    pub(crate) fn begin(running: &Running) -> anyhow::Result<Self> {
        Ok(Self {
            began: Instant::now(),
            carried: running.machine.carried()?,
            over: false,
        })
    }

    /// Looks again.
    pub(crate) fn look(&mut self, running: &mut Running) -> anyhow::Result<()> {
        if self.over || self.began.elapsed() < PATIENCE {
            return Ok(());
        }
        let Some(report) = running.plane.report(&running.record)? else {
            return Ok(());
        };
        if report.seen() != 0 {
            self.over = true;
            return Ok(());
        }
        for (index, packets) in running.machine.carried()? {
            let before = self.carried.iter().find(|(other, _)| *other == index);
            let since = packets.saturating_sub(before.map_or(packets, |(_, packets)| *packets));
            let mut interfaces = running.record.interfaces.iter();
            if let Some(interface) = interfaces.find(|interface| interface.index == index)
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
