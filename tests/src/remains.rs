//! What a finished emulation must not leave: devices, qdiscs, filters, programs, pins, records.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use aya::programs::{SchedClassifier, TcAttachType};

use crate::bed::{Host, INTERFACE};

/// How an interface and its namespace look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    devices: String,
    qdiscs: String,
    filters: String,
    programs: Vec<String>,
    records: Vec<String>,
}

impl State {
    /// Of a host, now.
    pub fn of(host: &Host) -> Result<Self> {
        let filters = ["ingress", "egress"].map(|side| {
            host.run(&format!("tc filter show dev {INTERFACE} {side}"))
                .unwrap_or_default()
        });
        Ok(Self {
            devices: host.run("ip -brief link show")?,
            qdiscs: host.run("tc qdisc show")?,
            filters: filters.concat(),
            programs: programs(host)?,
            records: records(host)?,
        })
    }

    /// Fails unless a host looks as it did.
    pub fn must_be_that_of(&self, host: &Host) -> Result<()> {
        let now = Self::of(host)?;
        ensure!(
            *self == now,
            "the emulation left something behind\nbefore: {self:#?}\nafter: {now:#?}"
        );
        Ok(())
    }
}

/// Packets that may wait for a processor, on this machine (`net.core.netdev_max_backlog`).
pub fn backlog() -> Result<u32> {
    let text = fs::read_to_string("/proc/sys/net/core/netdev_max_backlog")
        .context("reading net.core.netdev_max_backlog")?;
    Ok(text.trim().parse()?)
}

/// Programs attached by TCX; none where the kernel has no TCX.
fn programs(host: &Host) -> Result<Vec<String>> {
    host.enter(|| {
        [TcAttachType::Ingress, TcAttachType::Egress]
            .into_iter()
            .filter_map(|side| SchedClassifier::query_tcx(INTERFACE, side).ok())
            .flat_map(|(_, programs)| programs)
            .map(|program| program.name_as_str().unwrap_or("?").to_owned())
            .collect()
    })
}

/// Records and pins of emulations of this namespace's interfaces.
fn records(host: &Host) -> Result<Vec<String>> {
    let own = format!("{}-", host.namespace.inode()?);
    let mut found = Vec::new();
    for root in ["/run/perturb", "/sys/fs/bpf/perturb"] {
        if !Path::new(root).exists() {
            continue;
        }
        for entry in fs::read_dir(root).with_context(|| format!("reading {root}"))? {
            let path = entry?.path();
            if path
                .file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(&own))
            {
                found.push(path.display().to_string());
            }
        }
    }
    found.sort();
    Ok(found)
}
