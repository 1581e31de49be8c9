//! A profile, ready to be put in force.

use std::{net::IpAddr, path::Path, time::Duration};

use nix::sys::sysinfo::sysinfo;
use perturb_common::{tables::Tables, timeline::Start};
use perturb_dataplane::{
    emulation::Timekeeper, loader::Slots, netlink::FqOptions, programs::Pacer, user::SpinBudget,
};
use perturb_profile::{Files, Loaded, Prefix, Profile, Size, Whose};

use crate::{
    cgroups,
    hosts::{self, Hosts, NamedHost},
    lab,
    registry::InForce,
};

/// Room above the horizon for what fq itself adds.
const HORIZON_MARGIN: Duration = Duration::from_secs(1);
/// Unless the profile says how much, held packets may take this part of the machine's memory at most.
const MEMORY_PART: u64 = 4;

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// It could not be read, or is not valid.
    #[error(transparent)]
    Load(#[from] perturb_profile::LoadError),
    /// Its topology does not fit the hosts.
    #[error(transparent)]
    Expand(#[from] perturb_profile::ExpandError),
    /// A class names a host that has no address.
    #[error("host `{name}` has no address: {error}; correct the name, or give its addresses under `hosts`")]
    Host {
        /// The host.
        name: String,
        /// What the resolver says.
        error: std::io::Error,
    },
    /// A class names what is no private host.
    #[error(
        "there is no private host `{name}`: {known}; name one of them, or give its addresses under `hosts`"
    )]
    NoHost {
        /// The host.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// A group is the networks of an interface that is not there.
    #[error("interface `{name}` of a group has no network: {why}")]
    Interface {
        /// The interface.
        name: String,
        /// Why, and what to do.
        why: &'static str,
    },
    /// A class names a cgroup, and there are none.
    #[error("the profile names a cgroup: {0}; or match by ports or addresses instead")]
    Cgroups(std::io::Error),
    /// It is too large for the tables.
    #[error(transparent)]
    Compile(#[from] perturb_profile::CompileError),
    /// What tunnels take cannot come off its latencies.
    #[error(transparent)]
    Nearer(#[from] perturb_profile::NearerError),
    /// Overhead would be burnt by another machine than the host's.
    #[error(
        "`overhead` is burnt where packets are emulated, and hosts on other machines are emulated here: leave it out"
    )]
    OverheadElsewhere,
}

/// A profile, ready to be put in force.
#[derive(Clone)]
pub struct Prepared {
    /// What was read.
    pub profile: Profile,
    /// The files it names.
    pub files: Files,
    /// What it compiles to.
    pub tables: Tables,
    /// Whether its paths come from a topology.
    pub has_topology: bool,
    /// Whether a packet's whole path is folded at once.
    pub coarse: bool,
}

/// The memory that held packets may take, bytes: as the profile says, or what its paths can contain, if the machine has four
/// times as much.
fn held(given: Option<Size>, contained: Size) -> u64 {
    let memory = sysinfo().map_or(u64::MAX, |machine| machine.ram_total());
    given.map_or_else(|| contained.bytes().min(memory / MEMORY_PART), Size::bytes)
}

impl Prepared {
    /// Reads and compiles a profile as it is written: a topology stays one, for whatever hosts.
    pub fn as_written(path: &Path) -> Result<Self, ProfileError> {
        let loaded = perturb_profile::load(path)?;
        let profile = loaded.profile.clone();
        Self::compile(&loaded, profile)
    }

    /// Reads and compiles a profile; a topology joins the hosts that the profile names. Looks up the hosts that its classes name.
    pub fn load(path: &Path) -> Result<Self, ProfileError> {
        Self::found(perturb_profile::load(path)?)
    }

    /// The same of what was read.
    pub fn found(mut loaded: Loaded) -> Result<Self, ProfileError> {
        hosts::find(&loaded.profile, &mut loaded.files)?;
        Self::of_loaded(loaded)
    }

    /// Compiles what was read; a topology joins the hosts that the profile names.
    pub fn of_loaded(loaded: Loaded) -> Result<Self, ProfileError> {
        let hosts = perturb_profile::hosts_of(&loaded.profile);
        if let Some(network) = perturb_profile::network(&loaded.profile, &hosts)? {
            let compiled = perturb_profile::compile_network(&network, &loaded.files)?;
            return Ok(Self {
                tables: Tables {
                    held: held(loaded.profile.limits.held, network.held()),
                    ..compiled
                },
                profile: loaded.profile,
                files: loaded.files,
                has_topology: true,
                coarse: false,
            });
        }
        let expanded = perturb_profile::expand_prefixes(&loaded.profile, &hosts)?;
        Self::compile(&loaded, expanded)
    }

    /// Reads and compiles a profile for `check`: as it is written, and, if it names hosts, that its topology can join
    /// them.
    pub fn checked(path: &Path) -> Result<Self, ProfileError> {
        let written = Self::as_written(path)?;
        if written.has_topology && written.profile.hosts.len() > 1 {
            Self::of_loaded(perturb_profile::load(path)?)?;
        }
        Ok(written)
    }

    /// Reads and compiles a profile; a topology joins the hosts with these addresses.
    pub fn load_for(path: &Path, hosts: &[Vec<IpAddr>]) -> Result<Self, ProfileError> {
        let Loaded { profile, files } = perturb_profile::load_for(path, Whose::Everyone)?;
        Self::between(profile, files, hosts)
    }

    /// Whether each private host emulates for itself what it sends, and a packet's whole path is the sender's.
    #[must_use]
    pub fn is_the_senders(&self) -> bool {
        self.has_topology || self.profile.tells_own_side()
    }

    /// Reads a profile as it is written.
    pub fn read(path: &Path) -> Result<Profile, ProfileError> {
        Ok(perturb_profile::load(path)?.profile)
    }

    /// The same, if `coarse`, without cuts: the whole path is folded when a packet is captured. It costs one hold
    /// instead of one for each shared server, and makes servers look busy to packets that reach them earlier than those
    /// that were folded before.
    #[must_use]
    pub fn coarse_if(mut self, coarse: bool) -> Self {
        self.coarse |= coarse;
        if coarse {
            for path in &mut self.tables.paths {
                path.cuts = 0;
            }
        }
        self
    }

    /// The same between private hosts to which the way takes so long already, one way. The profile itself stays as it is.
    ///
    /// # Errors
    /// If its latencies are less.
    pub fn nearer(self, trips: &[Duration]) -> Result<Self, ProfileError> {
        if trips.iter().all(Duration::is_zero) {
            return Ok(self);
        }
        if !self.profile.overhead.is_none() || self.tables.overheads.is_some() {
            return Err(ProfileError::OverheadElsewhere);
        }
        let hosts = lab::all_addresses(u32::try_from(trips.len()).unwrap_or(u32::MAX));
        let hosts = hosts
            .into_iter()
            .map(|host| host.into_iter().map(Prefix::of).collect());
        let nanos = |trip: &Duration| u64::try_from(trip.as_nanos()).unwrap_or(u64::MAX);
        let trips = trips
            .iter()
            .map(|trip| perturb_profile::Duration::from_nanos(nanos(trip)));
        let profile = perturb_profile::nearer(&self.profile, &hosts.zip(trips).collect::<Vec<_>>())?;
        let tables = Tables {
            held: self.tables.held,
            ..perturb_profile::compile(&profile, &self.files)?
        };
        let coarse = self.coarse;
        Ok(Self { tables, ..self }.coarse_if(coarse))
    }

    /// Compiles a profile that names no files; a topology joins the hosts with these addresses.
    pub fn of(profile: Profile, hosts: &[Vec<IpAddr>]) -> Result<Self, ProfileError> {
        Self::between(profile, Files::default(), hosts)
    }

    /// Compiles a profile with the files that it names; a topology joins the hosts with these addresses.
    pub fn between(profile: Profile, mut files: Files, hosts: &[Vec<IpAddr>]) -> Result<Self, ProfileError> {
        for name in profile.named_hosts() {
            let number = (1..=hosts.len()).find(|number| name == format!("h{number}"));
            let addresses = number.and_then(|number| hosts.get(number - 1));
            let addresses = addresses.ok_or_else(|| ProfileError::NoHost {
                name: name.clone(),
                known: format!("there are h1 to h{}", hosts.len()),
            })?;
            files.hosts.insert(name, addresses.clone());
        }
        if let Some(name) = profile.named_interfaces().first() {
            return Err(ProfileError::Interface {
                name: (*name).to_owned(),
                why: "private hosts have no interfaces of this machine; name them under `host`",
            });
        }
        files.cgroups = cgroups::find(profile.named_cgroups()).map_err(ProfileError::Cgroups)?;
        let expanded = perturb_profile::expand(&profile, hosts)?;
        Self::compile(&Loaded { profile, files }, expanded)
    }

    /// Compiles a profile whose topology has been written out, with the jitter tables that it names.
    pub fn with_files(profile: Profile, files: Files) -> Result<Self, ProfileError> {
        let loaded = Loaded { profile, files };
        let profile = loaded.profile.clone();
        Self::compile(&loaded, profile)
    }

    fn compile(loaded: &Loaded, profile: Profile) -> Result<Self, ProfileError> {
        let has_topology = loaded.profile.topology.is_some();
        let tables = Tables {
            held: held(profile.limits.held, perturb_profile::held(&profile)),
            ..perturb_profile::compile(&profile, &loaded.files)?
        };
        Ok(Self {
            profile,
            files: loaded.files.clone(),
            tables,
            has_topology,
            coarse: false,
        })
    }

    /// Whether it changes from when it is put in force, or from the first packet on.
    #[must_use]
    pub fn starts_by_itself(&self) -> bool {
        let servers = self.tables.timelines.iter().map(|one| one.start);
        let mut starts = servers.chain(self.tables.overheads.iter().map(|one| one.start));
        starts.any(|start| !matches!(start, Start::At(_)))
    }

    /// The options of sch_fq that it needs.
    #[must_use]
    pub fn fq_options(&self) -> FqOptions {
        let horizon = Duration::from_nanos(self.tables.horizon.nanos().0) + HORIZON_MARGIN;
        FqOptions {
            buckets_log: 16,
            horizon_us: u32::try_from(horizon.as_micros()).unwrap_or(u32::MAX),
        }
    }

    /// What is recorded of it when it is in force.
    pub(crate) fn in_force(&self, fq: Option<FqOptions>, slots: Slots) -> InForce {
        InForce {
            profile: self.profile.to_string(),
            classes: self.tables.class_names.clone(),
            servers: self.tables.server_names.clone(),
            slots,
            fq,
            held: self.tables.held,
            hosts: self.named_hosts(),
            directory: self.files.directory.clone(),
            coarse: self.coarse,
        }
    }

    /// The hosts and cgroups that are to be looked up again, with what was found.
    fn named_hosts(&self) -> Hosts {
        let cgroups = self.profile.named_cgroups().into_iter().map(|one| {
            let host = NamedHost {
                cgroup: self.files.cgroups.ids.get(one).copied(),
                ..NamedHost::default()
            };
            (hosts::called(one), host)
        });
        let named = self.profile.named_hosts().into_iter();
        named
            .filter_map(|name| {
                let addresses = self.files.hosts.get(&name)?.clone();
                let host = NamedHost {
                    addresses,
                    ..NamedHost::default()
                };
                Some((name, host))
            })
            .chain(cgroups)
            .collect()
    }

    /// How a pacer keeps its time.
    #[must_use]
    pub fn timekeeper(&self, pacer: Pacer, spin: SpinBudget) -> Timekeeper {
        match pacer {
            Pacer::Fq => Timekeeper::Fq(self.fq_options()),
            Pacer::User => Timekeeper::User {
                spin,
                limit: self.tables.held,
            },
            Pacer::Switch => Timekeeper::Switch,
        }
    }
}
