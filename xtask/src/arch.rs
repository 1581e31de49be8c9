//! Processors that programs are made for, and kernels are started on.

use std::env;

use anyhow::{Context as _, Result};

/// A kind of processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Arch {
    #[value(name = "x86_64")]
    X86,
    #[value(name = "aarch64")]
    Arm,
}

impl Arch {
    /// This machine's.
    pub(crate) fn of_this_machine() -> Result<Self> {
        let arch = env::consts::ARCH;
        let found = [Self::X86, Self::Arm].into_iter().find(|one| one.name() == arch);
        found.with_context(|| format!("this needs x86_64 or aarch64; this machine is {arch}"))
    }

    /// Whether this machine has it.
    pub(crate) fn is_this_machine(self) -> bool {
        self.name() == env::consts::ARCH
    }

    /// As rustc, rpm, qemu and the kernel say.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::X86 => "x86_64",
            Self::Arm => "aarch64",
        }
    }

    /// As Debian and OCI say.
    pub(crate) fn other_name(self) -> &'static str {
        match self {
            Self::X86 => "amd64",
            Self::Arm => "arm64",
        }
    }
}
