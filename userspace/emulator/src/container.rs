//! Where a container's traffic goes in and out: found by one of its processes.

use std::{fmt::Write as _, net::IpAddr, path::PathBuf};

use anyhow::{Context as _, bail, ensure};
pub use perturb_dataplane::namespace::Namespace;
use perturb_dataplane::netlink::{Link, Netlink};

/// A network that a container is in: its name, and the container's addresses there.
pub type Attached = (String, Vec<IpAddr>);

/// An interface in another namespace.
#[derive(Debug)]
pub struct Inside {
    /// The namespace.
    pub namespace: Namespace,
    /// Its number.
    pub inode: u64,
    /// The interface.
    pub interface: String,
    /// Others that are left alone.
    pub others: Vec<String>,
}

/// The interface of a process's namespace: of the `network`, if one is named, else that of the default route, else the only one.
pub fn interface_of(pid: u32, networks: &[Attached], network: Option<&str>) -> anyhow::Result<Inside> {
    let path = PathBuf::from(format!("/proc/{pid}/ns/net"));
    let namespace = Namespace::open(&path).with_context(|| format!("opening {}", path.display()))?;
    let inode = namespace.inode()?;
    ensure!(
        inode != Namespace::current()?.inode()?,
        "it uses the network of this machine: `perturb apply --iface`"
    );
    let Seen {
        links,
        addresses,
        default,
    } = namespace.enter(Seen::look)??;
    // perturb's own devices, of this or another emulation, carry its name.
    let is_own = |link: &Link| {
        link.alias
            .as_deref()
            .is_some_and(|alias| alias.starts_with("perturb "))
    };
    let links: Vec<Link> = links
        .into_iter()
        .filter(|link| !link.loopback && !is_own(link))
        .collect();
    let of = |link: &Link| -> Vec<IpAddr> {
        let own = addresses.iter().filter(|(index, _)| *index == link.index);
        own.map(|&(_, address)| address).collect()
    };
    let candidates: Vec<(&str, u32, Vec<IpAddr>)> = links
        .iter()
        .map(|link| (link.name.as_str(), link.index, of(link)))
        .collect();
    let chosen = choose(&candidates, default, networks, network)?;
    Ok(Inside {
        namespace,
        inode,
        interface: chosen.to_owned(),
        others: candidates
            .iter()
            .filter(|(name, ..)| *name != chosen)
            .map(|&(name, _, ref own)| named(name, own, networks))
            .collect(),
    })
}

/// What there is in a namespace.
struct Seen {
    links: Vec<Link>,
    addresses: Vec<(u32, IpAddr)>,
    default: Option<u32>,
}

impl Seen {
    fn look() -> anyhow::Result<Self> {
        let mut netlink = Netlink::open()?;
        Ok(Self {
            links: netlink.links()?,
            addresses: netlink.addresses()?,
            default: netlink.default_route()?,
        })
    }
}

/// The name of the interface that is meant, of some with names, indices and addresses.
fn choose<'a>(
    candidates: &[(&'a str, u32, Vec<IpAddr>)],
    default: Option<u32>,
    networks: &[Attached],
    network: Option<&str>,
) -> anyhow::Result<&'a str> {
    if candidates.is_empty() {
        bail!("it has no interface but lo: it is in no network");
    }
    if let Some(wanted) = network {
        let Some((_, there)) = networks.iter().find(|(name, _)| name == wanted) else {
            let known: Vec<&str> = networks.iter().map(|(name, _)| name.as_str()).collect();
            bail!("it is not in the network `{wanted}`; it is in {}", list(&known));
        };
        let own = |addresses: &[IpAddr]| addresses.iter().any(|address| there.contains(address));
        return candidates
            .iter()
            .find(|(_, _, addresses)| own(addresses))
            .map(|&(name, ..)| name)
            .with_context(|| format!("no interface of it has its address in the network `{wanted}`"));
    }
    if let Some(&(name, ..)) = candidates.iter().find(|(_, index, _)| Some(*index) == default) {
        return Ok(name);
    }
    if let [(name, ..)] = candidates {
        return Ok(name);
    }
    let all: Vec<String> = candidates
        .iter()
        .map(|(name, _, addresses)| named(name, addresses, networks))
        .collect();
    bail!(
        "it has several interfaces and no default route: {}; choose one by its network: --network NAME",
        all.join(", ")
    )
}

fn list(names: &[&str]) -> String {
    if names.is_empty() {
        "none that its engine knows".into()
    } else {
        names.join(", ")
    }
}

/// An interface, with its network if that is known: `eth1 (back)`.
fn named(interface: &str, addresses: &[IpAddr], networks: &[Attached]) -> String {
    let mut text = interface.to_owned();
    let own = |(_, there): &&Attached| there.iter().any(|address| addresses.contains(address));
    if let Some((network, _)) = networks.iter().find(own) {
        // Writing to a string cannot fail.
        let _ = write!(text, " ({network})");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn networks() -> Vec<Attached> {
        vec![
            ("front".into(), vec![address(1)]),
            ("back".into(), vec![address(2)]),
        ]
    }

    #[test]
    fn which_interface() {
        let two = [("eth0", 2, vec![address(1)]), ("eth1", 3, vec![address(2)])];
        let one = &two[..1];
        let networks = networks();
        let chosen = |candidates: &[(&'static str, u32, Vec<IpAddr>)], default, network| {
            choose(candidates, default, &networks, network).map_err(|error| error.to_string())
        };
        assert_eq!(chosen(&two, Some(3), None), Ok("eth1"));
        assert_eq!(chosen(&two, Some(3), Some("front")), Ok("eth0"));
        assert_eq!(chosen(one, None, None), Ok("eth0"));
        for (said, parts) in [
            (
                chosen(&two, None, None),
                ["eth0 (front), eth1 (back)", "--network NAME"],
            ),
            (
                chosen(&two, Some(2), Some("side")),
                ["not in the network `side`", "front, back"],
            ),
            (chosen(one, Some(2), Some("back")), ["has its address", "`back`"]),
            (chosen(&[], None, None), ["no interface but lo", "in no network"]),
        ] {
            let said = said.expect_err("a mistake");
            assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        }
    }
}
