//! Which interfaces can be emulated.

use anyhow::{Context as _, bail, ensure};
use perturb_dataplane::{
    netlink::{Link, Netlink},
    survey::{Caveat, Survey},
};

/// Refuses an interface of the current namespace, one of `links`, that held packets cannot go back to; what of its traffic is
/// not emulated otherwise.
pub fn admit(netlink: &mut Netlink, link: &Link, links: &[Link]) -> anyhow::Result<Vec<Caveat>> {
    ensure!(
        link.ethernet,
        "{} has no Ethernet header; perturb emulates Ethernet-like interfaces (and lo) only: emulate the interface that it \
         runs over instead",
        link.name
    );
    refuse_taken(link, links)?;
    let found = Survey::of(netlink, link, links).with_context(|| format!("looking at {}", link.name))?;
    if let Some(obstacle) = found.obstacles.first() {
        bail!("{} cannot be emulated: {obstacle}", link.name);
    }
    Ok(found.caveats)
}

/// perturb's devices must not be put under emulation themselves.
fn refuse_taken(link: &Link, links: &[Link]) -> anyhow::Result<()> {
    ensure!(
        !link
            .alias
            .as_deref()
            .is_some_and(|alias| alias.starts_with("perturb ")),
        "{} is one of perturb's own devices",
        link.name
    );
    for prefix in ["pthold", "ptout", "ptsplit", "ptcut"] {
        let device = format!("{prefix}{}", link.index);
        ensure!(
            links.iter().all(|other| other.name != device),
            "an interface {device} exists, which is not perturb's; rename it: perturb needs the name"
        );
    }
    Ok(())
}
