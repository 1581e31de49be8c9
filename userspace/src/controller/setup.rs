//! Sets an emulation up on a set of interfaces: the record first, then devices and programs.

use std::{
    net::IpAddr,
    path::Path,
    time::{Duration, SystemTime},
};

use anyhow::Context as _;
use nix::sys::sysinfo::sysinfo;
use perturb_clock::now;
use perturb_common::tables::Tables;
use perturb_dataplane::{
    attach::Clsact,
    emulation::{Emulation, Timekeeper},
    hold::{self, DeviceNames},
    loader::Slots,
    loopback, machine,
    maps::MapIds,
    namespace::Namespace,
    netlink::{FqOptions, Link, Netlink},
    programs::Pacer,
    user::SpinBudget,
};
use perturb_profile::{Loaded, Profile, Size};

use crate::controller::{Lease, keeper::Keeper, running::Running};
use crate::registry::{
    self, InterfaceRecord, Process, Record, Registry,
    terms::{Confirm, Terms, after},
};

/// Room above the horizon for what fq itself adds.
const HORIZON_MARGIN: Duration = Duration::from_secs(1);
/// Unless the profile says how much, held packets may take this part of the machine's memory at most.
const MEMORY_PART: u64 = 4;

/// An interface to be put under emulation.
pub struct Target {
    /// Its namespace.
    pub namespace: Namespace,
    /// The interface.
    pub link: Link,
    /// The private host that has it.
    pub host: Option<String>,
    /// [`perturb_common::abi::Attachment::rank`].
    pub rank: u32,
    /// Indices for its devices, or zeros.
    pub indices: [u32; 4],
}

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// It could not be read, or is not valid.
    #[error(transparent)]
    Load(#[from] perturb_profile::LoadError),
    /// Its topology does not fit the hosts.
    #[error(transparent)]
    Expand(#[from] perturb_profile::ExpandError),
    /// It is too large for the tables.
    #[error(transparent)]
    Compile(#[from] perturb_profile::CompileError),
}

/// A profile, ready to be put in force.
pub struct Prepared {
    /// What was read.
    pub profile: Profile,
    /// What it compiles to.
    pub tables: Tables,
    /// Whether its paths come from a topology: then the sender folds a packet's whole path.
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

    /// Reads and compiles a profile; a topology joins the hosts that the profile names.
    pub fn load(path: &Path) -> Result<Self, ProfileError> {
        let loaded = perturb_profile::load(path)?;
        let hosts = perturb_profile::hosts_of(&loaded.profile);
        if let Some(network) = perturb_profile::network(&loaded.profile, &hosts)? {
            let compiled = perturb_profile::compile_network(&network, &loaded.files)?;
            return Ok(Self {
                tables: Tables {
                    held: held(loaded.profile.limits.held, network.held()),
                    ..compiled
                },
                profile: loaded.profile,
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
            Self::load(path)?;
        }
        Ok(written)
    }

    /// Reads and compiles a profile; a topology joins the hosts with these addresses.
    pub fn load_for(path: &Path, hosts: &[Vec<IpAddr>]) -> Result<Self, ProfileError> {
        let loaded = perturb_profile::load(path)?;
        let expanded = perturb_profile::expand(&loaded.profile, hosts)?;
        Self::compile(&loaded, expanded)
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

    /// Compiles a profile that names no files; a topology joins the hosts with these addresses.
    pub fn of(profile: Profile, hosts: &[Vec<IpAddr>]) -> Result<Self, ProfileError> {
        let expanded = perturb_profile::expand(&profile, hosts)?;
        let files = perturb_profile::JitterFiles::new();
        Self::compile(&Loaded { profile, files }, expanded)
    }

    /// Compiles a profile whose topology has been written out, with the jitter tables that it names.
    pub fn with_files(profile: Profile, files: perturb_profile::JitterFiles) -> Result<Self, ProfileError> {
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
            tables,
            has_topology,
            coarse: false,
        })
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
}

impl Prepared {
    /// How a pacer keeps its time.
    #[must_use]
    pub fn timekeeper(&self, pacer: Pacer, spin: SpinBudget) -> Timekeeper {
        match pacer {
            Pacer::Fq => Timekeeper::Fq(self.fq_options()),
            Pacer::User => Timekeeper::User {
                spin,
                limit: self.tables.held,
            },
        }
    }
}

/// How the time is to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pacing {
    /// By whom.
    pub choice: PacerChoice,
    /// For the user pacer.
    pub spin: SpinBudget,
}

/// How an emulation is to be conducted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conduct {
    /// How the time is kept.
    pub pacing: Pacing,
    /// How long the programs go on without this process.
    pub lease: Lease,
    /// Show the programs' own messages.
    pub verbose: bool,
    /// Wait for an interface that goes, and go on when it comes back.
    pub follow: bool,
    /// End by itself after this time.
    pub duration: Option<Duration>,
    /// Undo everything unless it is confirmed within this time.
    pub confirm: Option<Duration>,
    /// No terminal and no session waits for this process.
    pub detached: bool,
}

impl Conduct {
    /// As long as this process goes on.
    #[must_use]
    pub fn plain(pacing: Pacing, lease: Lease, verbose: bool) -> Self {
        Self {
            pacing,
            lease,
            verbose,
            follow: false,
            duration: None,
            confirm: None,
            detached: false,
        }
    }

    fn terms(&self) -> Terms {
        Terms {
            lease: match self.lease {
                Lease::For(length) => Some(length.as_nanos().try_into().unwrap_or(u64::MAX)),
                Lease::Never => None,
            },
            ends: self.duration.map(after),
            follow: self.follow,
            confirm: self.confirm.map(|time| Confirm {
                by: after(time),
                before: None,
            }),
        }
    }
}

/// Which pacer is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacerChoice {
    /// fq where the kernel has it, else user.
    Auto,
    /// This one.
    Only(Pacer),
}

impl PacerChoice {
    /// As the command line writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Only(pacer) => pacer_name(pacer),
        }
    }

    /// Decides.
    pub fn decide(self) -> anyhow::Result<Pacer> {
        match self {
            Self::Only(pacer) => Ok(pacer),
            Self::Auto => {
                let has_fq = hold::has_fq().context("asking this kernel for sch_fq")?;
                Ok(if has_fq { Pacer::Fq } else { Pacer::User })
            }
        }
    }
}

/// Sets an emulation up; it begins interface by interface, under the lease.
pub fn set_up(
    _registry: &Registry,
    id: &str,
    prepared: &Prepared,
    targets: Vec<Target>,
    conduct: Conduct,
) -> anyhow::Result<Running> {
    let pacer = conduct.pacing.choice.decide()?;
    let names: Vec<DeviceNames> = targets
        .iter()
        .map(|target| device_names(id, target.link.index, target.indices))
        .collect();
    let interfaces = targets.iter().zip(&names).map(|(target, names)| {
        let index = target.link.index;
        let makes_clsact = || Clsact::is_missing(&mut Netlink::open()?, index);
        Ok(InterfaceRecord {
            name: target.link.name.clone(),
            index,
            host: target.host.clone(),
            namespace: target.namespace.inode()?,
            devices: names.iter().map(Into::into).collect(),
            made_clsact: target.namespace.enter(makes_clsact)??,
            settings: if target.link.loopback {
                target.namespace.enter(loopback::needed)??
            } else {
                Vec::new()
            },
            lost: false,
        })
    });
    let timekeeper = prepared.timekeeper(pacer, conduct.pacing.spin);
    let mut record = Record {
        format: registry::FORMAT,
        id: id.into(),
        process: Process::current().context("asking the kernel which process this is")?,
        pacer: pacer_name(pacer).into(),
        ready: false,
        interfaces: interfaces.collect::<anyhow::Result<_>>()?,
        profile: prepared.profile.to_string(),
        classes: prepared.tables.class_names.clone(),
        servers: prepared.tables.server_names.clone(),
        slots: Slots::default(),
        maps: MapIds::default(),
        since: SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |time| time.as_secs()),
        updates: 0,
        fq: match timekeeper {
            Timekeeper::Fq(options) => Some(options),
            Timekeeper::User { .. } => None,
        },
        spin: conduct.pacing.spin.0.as_nanos().try_into().unwrap_or(u64::MAX),
        held: prepared.tables.held,
        detached: conduct.detached,
        terms: Terms::default(),
    };
    let claim = record.begin()?;
    registry::raised::raise(&machine::BACKLOG)?;
    let (emulation, keeper) = attach(&mut record, prepared, targets, &names, &timekeeper, conduct)?;
    Ok(Running {
        keeper,
        emulation,
        record,
        timekeeper,
        lost: Vec::new(),
        claim,
    })
}

fn attach(
    record: &mut Record,
    prepared: &Prepared,
    targets: Vec<Target>,
    names: &[DeviceNames],
    timekeeper: &Timekeeper,
    conduct: Conduct,
) -> anyhow::Result<(Emulation, Keeper)> {
    let mut emulation = Emulation::new(timekeeper, conduct.verbose, &prepared.tables)?;
    record.maps = emulation.map_ids()?;
    record.slots = emulation.loader().slots().clone();
    // Whoever clears after a kill knows the filters by their maps.
    record.write()?;
    emulation.loader().set_lease(conduct.lease.until(now()))?;
    for (target, names) in targets.into_iter().zip(names) {
        emulation.add(timekeeper, target.namespace, target.link, target.rank, names)?;
    }
    for (recorded, interface) in record.interfaces.iter_mut().zip(emulation.interfaces()) {
        recorded.made_clsact = interface.made_clsact();
    }
    let keeper = Keeper::start(emulation.vitals()?, conduct.lease, conduct.follow)?;
    record.ready = true;
    record.terms = conduct.terms();
    record.write()?;
    Ok((emulation, keeper))
}

/// Names that say what they are and cannot clash between interfaces of a namespace.
pub(super) fn device_names(id: &str, index: u32, indices: [u32; 4]) -> DeviceNames {
    let name = |what: &str| format!("pt{what}{index}");
    DeviceNames {
        hold: [name("hold"), name("out")],
        split: [name("split"), name("cut")],
        indices,
        alias: Record::alias(id),
    }
}

/// A pacer's name in options and reports.
#[must_use]
pub fn pacer_name(pacer: Pacer) -> &'static str {
    match pacer {
        Pacer::Fq => "fq",
        Pacer::User => "user",
    }
}
