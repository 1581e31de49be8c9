//! Which interfaces can be emulated.

use anyhow::{Context as _, bail, ensure};
use perturb_dataplane::{
    netlink::{Link, Netlink},
    survey::{Caveat, Survey},
};

/// How the names of perturb's own devices begin.
const DEVICES: [&str; 4] = ["pthold", "ptout", "ptsplit", "ptcut"];

/// Refuses an interface of the current namespace, one of `links`, that held packets cannot go back to; what of its traffic is
/// not emulated otherwise.
pub(crate) fn admit(netlink: &mut Netlink, link: &Link, links: &[Link]) -> anyhow::Result<Vec<Caveat>> {
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
    for prefix in DEVICES {
        let device = format!("{prefix}{}", link.index);
        ensure!(
            links.iter().all(|other| other.name != device),
            "an interface {device} exists, which is not perturb's; rename it: perturb needs the name"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs, io, path::Path};

    use super::DEVICES;
    use crate::setup::device_names;

    /// systemd-networkd, udev and NetworkManager are told to leave each of the devices alone that a set-up makes.
    #[test]
    fn those_who_configure_interfaces_leave_ours_alone() -> io::Result<()> {
        let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
        let made: Vec<String> = device_names("1-7", 7, [0; 4]).iter().map(Into::into).collect();
        assert_eq!(made, DEVICES.map(|prefix| format!("{prefix}7")));
        for (file, rule) in [
            ("00-perturb.network", "Unmanaged=yes"),
            ("00-perturb.link", "MACAddressPolicy=none"),
            ("perturb-networkmanager.conf", "unmanaged"),
        ] {
            let text = fs::read_to_string(packaging.join(file))?;
            assert!(text.contains(rule), "{file}");
            for prefix in DEVICES {
                assert!(text.contains(&format!("{prefix}*")), "{file} lacks {prefix}");
            }
        }
        Ok(())
    }

    /// The unit for lo, which systemd knows no device of, is the others' without that device.
    #[test]
    fn unit_of_lo_is_that_of_all() -> io::Result<()> {
        let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
        let lines = |file: &str| -> io::Result<Vec<String>> {
            let text = fs::read_to_string(packaging.join(file))?;
            let text = text.replace(" sys-subsystem-net-devices-%i.device", "");
            let is_said = |line: &&str| !line.starts_with('#') && !line.starts_with("BindsTo=");
            Ok(text.lines().filter(is_said).map(Into::into).collect())
        };
        assert_eq!(lines("perturb@lo.service")?, lines("perturb@.service")?);
        Ok(())
    }
}
