//! Interfaces of this namespace: what is applied to them, and what can be.

use anyhow::bail;
use perturb_dataplane::{
    namespace::Namespace,
    netlink::{Link, Netlink},
};

use crate::{
    admission::admit,
    registry::{Contained, Record, Recorded, Registry},
    setup::Target,
};

/// Interfaces that were named.
pub struct Chosen(Vec<Link>);

impl Chosen {
    /// The interfaces of these names.
    pub fn by_name(names: &[String]) -> anyhow::Result<Self> {
        let links = Netlink::open()?.links()?;
        let find = |name: &String| match links.iter().find(|link| link.name == *name) {
            Some(link) => Ok(link.clone()),
            None => {
                let known: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
                bail!(
                    "there is no interface {name} here; there are {}",
                    known.join(", ")
                );
            }
        };
        names.iter().map(find).collect::<anyhow::Result<_>>().map(Self)
    }

    /// Their emulations. An interface that was deleted and made again is another one, whatever its name.
    pub fn applied(&self, registry: &Registry) -> anyhow::Result<Vec<Record>> {
        let here = Namespace::current()?.inode()?;
        let mut applied = Vec::new();
        let Recorded { records, unreadable } = registry.records()?;
        let ours = |name: &str, index| self.0.iter().any(|link| link.name == name || link.index == index);
        if let Some(theirs) = unreadable.into_iter().find(|record| record.may_have(here, ours)) {
            return Err(theirs.error.into());
        }
        for record in records {
            let interfaces = || {
                record
                    .interfaces
                    .iter()
                    .filter(|interface| interface.namespace == here)
            };
            if interfaces().any(|old| self.0.iter().any(|link| link.index == old.index && !old.lost)) {
                applied.push(record);
                continue;
            }
            let again = |name: &str| self.0.iter().any(|link| link.name == name);
            if let Some(old) = interfaces().find(|old| again(&old.name)) {
                bail!(
                    "{name} is not the interface that {id} emulates: that one is gone (it had index {index}); process {pid} \
                     {does}; `perturb clear --iface {name}` ends what it still does",
                    name = old.name,
                    id = record.id,
                    index = old.index,
                    pid = record.process.pid,
                    does = if record.terms.follow {
                        "goes on with the new one within a second, so try again then, unless its messages say why it cannot"
                    } else {
                        "has not noticed it yet"
                    },
                );
            }
        }
        Ok(applied)
    }

    /// What is to be emulated; of what of their traffic is not is warned.
    pub fn targets(&self, container: Option<&Contained>) -> anyhow::Result<Vec<Target>> {
        let mut netlink = Netlink::open()?;
        let links = netlink.links()?;
        let target = |link: &Link| {
            for caveat in admit(&mut netlink, link, &links)? {
                log::warn!("{}: {caveat}", link.name);
            }
            Ok(Target {
                namespace: Namespace::current()?,
                link: link.clone(),
                host: None,
                container: container.cloned(),
                rank: 0,
                indices: [0; 4],
            })
        };
        self.0.iter().map(target).collect()
    }
}
