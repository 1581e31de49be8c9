//! Loading the eBPF object.

use std::{io, os::fd::OwnedFd, panic, thread, time::Duration};

use aya::{
    Ebpf, EbpfError, EbpfLoader, include_bytes_aligned,
    maps::Map,
    programs::{ProgramError, ProgramFd, ProgramType, SchedClassifier, SocketFilter},
    sys::{BpfHelper, is_helper_supported},
};
use perturb_common::{
    abi::{PACER_FQ, PACER_USER},
    flow::{SECRET_WORDS, Secret},
};

use crate::{
    jit,
    room::{Memory, Room},
};

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/perturb.bpf.o"));

/// Why the programs did not load.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Built by plain `cargo build`.
    #[error("this perturb was built without its eBPF programs; build it with `cargo xtask build`")]
    NotEmbedded,
    /// The object or a map was refused.
    #[error("loading the eBPF object: {0}")]
    Object(#[from] EbpfError),
    /// A program was refused.
    #[error("loading the eBPF program {name}: {source}")]
    Program {
        name: &'static str,
        /// The kernel's answer, with the verifier's log.
        source: ProgramError,
    },
    /// The kernel gives no random numbers to key the flow cache by.
    #[error("no random numbers from the kernel, which the hash of flows needs: {0}")]
    Secret(getrandom::Error),
    /// The switch's programs run in its process.
    #[error("the kernel runs no programs for the switch")]
    NotTheKernels,
    /// The file of the tables, where the programs run in this process.
    #[error("making room for the emulation's tables: {0}")]
    Tables(io::Error),
    /// The object lacks what this controller expects: they were built apart.
    #[error("the eBPF object has no {0}")]
    Missing(&'static str),
}

/// A program of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// At the interface's egress.
    Egress,
    /// At the interface's ingress.
    Ingress,
    /// At the far end of a hold device.
    Release,
    /// At the near end of an fq hold device.
    Stamp,
    /// Behind [`Self::Release`]: drops everything.
    Discard,
    /// At the egress of a tunnel.
    Sent,
    /// At its ingress.
    Received,
    /// Does nothing.
    Idle,
}

impl Program {
    /// Its name in the object and in `bpftool prog`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Egress => "perturb_egress",
            Self::Ingress => "perturb_ingress",
            Self::Release => "perturb_release",
            Self::Stamp => "perturb_stamp",
            Self::Discard => "perturb_discard",
            Self::Sent => "perturb_sent",
            Self::Received => "perturb_received",
            Self::Idle => "perturb_idle",
        }
    }
}

/// What keeps the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pacer {
    /// sch_fq.
    Fq,
    /// A thread of the controller.
    User,
    /// The same, which runs the programs, too: [`crate::switch`].
    Switch,
}

impl Pacer {
    /// Its name in options and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fq => "fq",
            Self::User => "user",
            Self::Switch => "switch",
        }
    }
}

/// How to load.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// Which pacer the programs work for.
    pub pacer: Pacer,
    /// How large the tables are.
    pub room: Room,
    /// Whether the programs report what they do.
    pub verbose: bool,
}

/// The loaded object.
pub struct Programs {
    ebpf: Ebpf,
}

impl Programs {
    /// Loads the object's maps; programs are loaded when first attached or run.
    pub fn load(options: LoadOptions) -> Result<Self, LoadError> {
        if OBJECT.is_empty() {
            return Err(LoadError::NotEmbedded);
        }
        let jit = u32::from(jit::compiles());
        let cgroups = u32::from(tells_cgroups() == Some(true));
        let pacer = match options.pacer {
            Pacer::Fq => PACER_FQ,
            Pacer::User => PACER_USER,
            Pacer::Switch => return Err(LoadError::NotTheKernels),
        };
        let room = options.room;
        let (flow_mask, instance_mask) = (room.flows - 1, room.instances - 1);
        // aya's levels: 0 is off, 3 is info.
        let level: u8 = if options.verbose { 3 } else { 0 };
        let mut secret: Secret = [0; SECRET_WORDS];
        for word in &mut secret {
            *word = getrandom::u64().map_err(LoadError::Secret)?;
        }
        let mut loader = EbpfLoader::new();
        loader
            .override_global("HAVE_JIT", &jit, true)
            .override_global("HAVE_CGROUPS", &cgroups, true)
            .override_global("PACER", &pacer, true)
            .override_global("AYA_LOG_LEVEL", &level, false)
            .override_global("FLOW_MASK", &flow_mask, true)
            .override_global("INSTANCE_MASK", &instance_mask, true)
            .override_global("FLOW_HOME", &room.home, true)
            .override_global("SECRET", secret.as_slice(), true);
        for (map, entries) in room.entries() {
            loader.map_max_entries(map, entries);
        }
        let ebpf = loader.load(OBJECT)?;
        Ok(Self { ebpf })
    }

    /// A program, loaded into the kernel.
    pub fn program(&mut self, program: Program) -> Result<&mut SchedClassifier, LoadError> {
        let name = program.name();
        let found = self.ebpf.program_mut(name).ok_or(LoadError::Missing(name))?;
        loaded(name, found)
    }

    /// Loads several at once: the verifier takes a third of a second for one that captures or releases.
    pub fn load_all(&mut self, programs: &[Program]) -> Result<(), LoadError> {
        let wanted = |name: &str| {
            programs
                .iter()
                .map(|program| program.name())
                .find(|known| *known == name)
        };
        thread::scope(|scope| {
            let threads: Vec<_> = self
                .ebpf
                .programs_mut()
                .filter_map(|(name, found)| Some((wanted(name)?, found)))
                .map(|(name, found)| scope.spawn(move || loaded(name, found).map(drop)))
                .collect();
            threads.into_iter().try_for_each(|thread| {
                let done = thread.join();
                done.unwrap_or_else(|panic| panic::resume_unwind(panic))
            })
        })
    }

    /// The program that chooses the queue of a TAP, loaded into the kernel.
    pub fn steering(&mut self) -> Result<&ProgramFd, LoadError> {
        const NAME: &str = "perturb_steer";
        let failed = |source| LoadError::Program { name: NAME, source };
        let loaded: &mut SocketFilter = self
            .ebpf
            .program_mut(NAME)
            .ok_or(LoadError::Missing(NAME))?
            .try_into()
            .map_err(failed)?;
        if loaded.fd().is_err() {
            loaded.load().map_err(failed)?;
        }
        loaded.fd().map_err(failed)
    }

    /// What the kernel has counted for a program since [`count_processor_time`]; zeros before.
    pub fn processor_time(&mut self, program: Program) -> Result<ProcessorTime, LoadError> {
        let name = program.name();
        let info = self
            .program(program)?
            .info()
            .map_err(|source| LoadError::Program { name, source })?;
        Ok(ProcessorTime {
            total: info.run_time(),
            runs: info.run_count(),
        })
    }

    /// The kernel memory that the object's maps take.
    pub fn memory(&self) -> io::Result<Memory> {
        let cpus = aya::util::nr_cpus()
            .map_err(|(path, error)| io::Error::new(error.kind(), format!("{path}: {error}")))?;
        let maps: Vec<&Map> = self.ebpf.maps().map(|(_, map)| map).collect();
        Memory::of(&maps, cpus as u64)
    }

    /// A map of the object.
    pub(crate) fn raw_map(&self, name: &str) -> Option<&Map> {
        self.ebpf.map(name)
    }

    /// The same for good.
    pub(crate) fn take_map(&mut self, name: &str) -> Option<Map> {
        self.ebpf.take_map(name)
    }

    /// A reader of the programs' messages, which writes them to `log`. Once only: it takes the map.
    pub fn log_reader(&mut self, log: &'static dyn log::Log) -> Result<LogReader, aya_log::Error> {
        aya_log::EbpfLogger::init_with_logger(&mut self.ebpf, log)
    }
}

/// Whether this kernel tells programs of which cgroup a packet's socket is (CONFIG_SOCK_CGROUP_DATA); nothing if it does not let us
/// ask.
#[must_use]
pub fn tells_cgroups() -> Option<bool> {
    is_helper_supported(
        ProgramType::SchedClassifier,
        BpfHelper::BPF_FUNC_skb_ancestor_cgroup_id,
    )
    .ok()
}

/// Loads a program into the kernel, unless it is there.
fn loaded<'a>(
    name: &'static str,
    found: &'a mut aya::programs::Program,
) -> Result<&'a mut SchedClassifier, LoadError> {
    let refused = |source| LoadError::Program { name, source };
    let program: &mut SchedClassifier = found.try_into().map_err(refused)?;
    if program.fd().is_err() {
        program.load().map_err(refused)?;
    }
    Ok(program)
}

/// Processor time of a program, by the kernel's account (`bpf_prog_stats`, since 5.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorTime {
    /// Of all runs.
    pub total: Duration,
    /// How often it ran.
    pub runs: u64,
}

/// Has the kernel count the processor time of all programs until the handle is dropped (BPF_ENABLE_STATS, since 5.8);
/// each run then costs two readings of a clock more.
pub fn count_processor_time() -> io::Result<OwnedFd> {
    aya::sys::enable_stats(aya::sys::Stats::RunTime).map_err(|error| error.io_error)
}

/// Reads the programs' messages.
pub type LogReader = aya_log::EbpfLogger<&'static dyn log::Log>;
