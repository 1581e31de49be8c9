//! What is behind the names that classes match by: addresses of hosts and of groups of them, numbers of cgroups.

use std::collections::HashMap;

use super::{CompileError, Files};
use crate::cgroup::Numbers;
use crate::expand::shared;
use crate::matching::{HostName, Prefix};
use crate::model::{Name, Profile};

/// Who is meant by a name.
pub(super) struct Members<'p> {
    profile: &'p Profile,
    files: &'p Files,
    groups: HashMap<&'p Name, Vec<Prefix>>,
    pub(super) cgroups: Numbers<'p>,
}

impl<'p> Members<'p> {
    /// # Errors
    /// If two groups have an address in common.
    pub(super) fn of(profile: &'p Profile, files: &'p Files) -> Result<Self, CompileError> {
        let mut members = Self {
            profile,
            files,
            groups: HashMap::new(),
            cgroups: Numbers::of(profile),
        };
        let of_group = |(name, group): &'p (Name, crate::Group)| {
            let named = group.named();
            let named: Vec<Prefix> = named.flat_map(|name| members.called(&name)).collect();
            let behind = group.interface.iter();
            let behind = behind
                .filter_map(|one| files.networks.get(one.as_str()))
                .flatten();
            let named = named.into_iter().chain(behind.copied());
            (
                name,
                group.prefix.iter().copied().chain(named).collect::<Vec<_>>(),
            )
        };
        let groups: Vec<(&Name, Vec<Prefix>)> = profile.groups.iter().map(of_group).collect();
        let all = groups.iter().enumerate();
        let all = all.flat_map(|(number, (_, prefixes))| prefixes.iter().map(move |&one| (number, one)));
        if let Some((one, other, address)) = shared(all.collect())
            && let (Some((group, _)), Some((other, _))) = (profile.groups.get(one), profile.groups.get(other))
        {
            return Err(CompileError::SameAddress {
                group: group.clone(),
                other: other.clone(),
                address,
            });
        }
        members.groups = groups.into_iter().collect();
        Ok(members)
    }

    /// The addresses of a host: those that the profile gives it, or what was looked up.
    pub(super) fn host(&self, host: &HostName) -> Vec<Prefix> {
        self.called(host.as_str())
    }

    fn called(&self, host: &str) -> Vec<Prefix> {
        let mut given = self.profile.hosts.iter();
        if let Some((_, prefixes)) = given.find(|(name, _)| name.as_str() == host) {
            return prefixes.clone();
        }
        let found = self.files.hosts.get(host).map_or(&[][..], Vec::as_slice);
        found.iter().map(|&address| Prefix::of(address)).collect()
    }

    /// The addresses of a group.
    pub(super) fn group(&self, name: &Name) -> &[Prefix] {
        self.groups.get(name).map_or(&[], Vec::as_slice)
    }
}
