//! Private hosts under emulation.

use std::{sync::Arc, thread};

use anyhow::{Context as _, bail};
use perturb_dataplane::{machine, netlink::Netlink, steering::Steering};

use super::{Host, INTERFACE, Lab};
use crate::{
    conduct::Conduct,
    enter,
    kernel::Kernel,
    prepared::Prepared,
    privileges,
    registry::{self, Record},
    running::Running,
    seam::Machine,
    setup::{Target, set_up},
    switched::OnSwitch,
};

/// Puts a lab under emulation.
pub fn emulate(lab: &Lab, prepared: &Prepared, conduct: Conduct) -> anyhow::Result<Running> {
    let registry = enter()?;
    let mut targets = lab.hosts.iter().map(target).collect::<anyhow::Result<Vec<_>>>()?;
    if prepared.is_the_senders() {
        for target in &mut targets {
            target.rank = 0;
        }
    }
    let id = Record::of_private_hosts();
    // A thread has the capabilities of the one that started it: those that keep the emulation alive get what they need, and
    // this one still has all, to start the hosts' processes.
    let set_up = || {
        privileges::keep_needed().context("giving up capabilities")?;
        let machine: Arc<dyn Machine> = match lab.switch() {
            Some(switch) => Arc::new(OnSwitch(Arc::clone(switch))),
            None => Arc::new(Kernel),
        };
        set_up(&machine, &registry, &id, prepared, targets, conduct)
    };
    let running = thread::scope(|scope| {
        let spawned = thread::Builder::new().spawn_scoped(scope, set_up);
        let thread = spawned.context("starting the thread that sets the emulation up")?;
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    if prepared.profile.overhead.receive.nanos() > 0 {
        receive_where_receivers_run(lab)?;
    }
    Ok(running)
}

/// Overhead is its host's own: it is burnt by the processor that runs the receiver, not by that of a sender or a pacer.
fn receive_where_receivers_run(lab: &Lab) -> anyhow::Result<()> {
    registry::raised::raise(&machine::RECEIVERS)?;
    for host in &lab.hosts {
        let follow = || Steering::here()?.follow(INTERFACE);
        host.namespace.enter(follow).with_context(|| host.name())??;
    }
    Ok(())
}

fn target(host: &Host) -> anyhow::Result<Target> {
    let namespace = host.namespace.try_clone()?;
    let link = namespace.enter(|| Netlink::open()?.link(INTERFACE))??;
    let Some(link) = link else {
        bail!("{} has lost its interface", host.name())
    };
    Ok(Target {
        namespace,
        link,
        host: Some(host.name()),
        container: None,
        rank: host.number,
        indices: host.device_indices(),
    })
}
