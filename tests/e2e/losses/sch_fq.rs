//! Losses where sch_fq holds packets.

use std::fs;

use super::*;

/// Only where sch_fq is what holds packets.
fn needs_fq(setting: &Setting) -> Result<()> {
    match setting.pacer {
        Pacer::Fq => Ok(()),
        Pacer::User | Pacer::Switch => Err(skip("only the fq pacer holds packets in sch_fq")),
    }
}

/// For datagrams that are held for half a second.
fn patient() -> Plan {
    Plan {
        patience: Duration::from_secs(3),
        ..Plan::default()
    }
}

/// The machine's limit of a backlog, which is put back whatever happens.
struct Backlog(Vec<u8>);

impl Backlog {
    const FILE: &str = "/proc/sys/net/core/netdev_max_backlog";

    fn limited(limit: &str) -> Result<Self> {
        let usual = Self(fs::read(Self::FILE)?);
        fs::write(Self::FILE, limit)?;
        Ok(usual)
    }
}

impl Drop for Backlog {
    fn drop(&mut self) {
        // The test fails elsewhere if it cannot be written.
        let _ = fs::write(Self::FILE, &self.0);
    }
}

/// A packet and its copy leave together, and the processor that takes them has room for one of them.
pub(super) fn backlog(setting: &Setting) -> Result<()> {
    needs_fq(setting)?;
    let (bed, before) = setting.bed()?;
    let applied = apply(setting, &bed, "latency: 500ms\nduplicate: 100%")?;
    // One is taken where none waits (`enqueue_to_backlog`).
    let limited = Backlog::limited("0")?;
    burst(&bed, 300, &patient())?;
    drop(limited);
    let report = at_rest(&applied)?;
    applied.stop()?;
    // What is duplicated is split first, which takes a backlog, too.
    let (named, split) = (
        counted(&report, "/unintended/hold_device"),
        counted(&report, "/unintended/splitter"),
    );
    figure!("{named} and {split}; {}", report["balance"]);
    ensure!(
        named > 0 && report["balance"]["unintended"] == named + split,
        "{} {}",
        report["unintended"],
        report["balance"]
    );
    before.must_be_that_of(&bed.left)
}

/// Somebody gives the sch_fq of the hold device less room than the profile needs.
pub(super) fn full(setting: &Setting) -> Result<()> {
    squeezed(setting, "limit 5")
}

/// Somebody gives it a shorter horizon than the profile's.
pub(super) fn beyond(setting: &Setting) -> Result<()> {
    squeezed(setting, "horizon 50ms")
}

/// Packets find the hold device's sch_fq with these options.
fn squeezed(setting: &Setting, options: &str) -> Result<()> {
    needs_fq(setting)?;
    let (bed, before) = setting.bed()?;
    let applied = apply(setting, &bed, "latency: 500ms")?;
    let device = hold_device(&bed)?;
    let shown = bed.left.run(&format!("tc qdisc show dev {device}"))?;
    for line in shown.lines().filter(|line| line.starts_with("qdisc fq ")) {
        let mut words = line.split_whitespace().skip(2);
        let (handle, parent) = (words.next(), words.nth(1));
        let (handle, parent) = handle.zip(parent).with_context(|| line.to_owned())?;
        let parent = if line.contains(" root ") {
            "root".to_owned()
        } else {
            format!("parent {parent}")
        };
        bed.left.run(&format!(
            "tc qdisc change dev {device} {parent} handle {handle} fq {options}"
        ))?;
    }
    let trace = burst(&bed, 300, &patient())?;
    let report = at_rest(&applied)?;
    applied.stop()?;
    must_name(&report, "/unintended/hold_device", &trace)?;
    before.must_be_that_of(&bed.left)
}
