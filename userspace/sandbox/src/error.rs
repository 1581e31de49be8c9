//! What can go wrong, and the way out of it.

use std::{io, path::PathBuf, time::Duration};

/// Why a command could not be run in the sandbox, or was not run to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// No user-mode kernel.
    #[error("no user-mode kernel: `linux.uml` is not in PATH; on Debian: apt-get install user-mode-linux")]
    NoKernel,
    /// The kernel is there, its modules are not.
    #[error("{kernel} has no modules in {directory}; on Debian: apt-get install --reinstall user-mode-linux")]
    NoModules {
        /// The user-mode kernel.
        kernel: PathBuf,
        /// Where its modules were looked for.
        directory: PathBuf,
    },
    /// No emulator of processors.
    #[error("no `{program}` in PATH; on Debian: apt-get install {package}")]
    NoQemu {
        /// The emulator.
        program: String,
        /// Debian's package that has it.
        package: &'static str,
    },
    /// A processor that nobody has made a machine for.
    #[error("stock kernels run on x86_64 and aarch64, not on {processor}")]
    NoBoard {
        /// The processor.
        processor: String,
    },
    /// No stock kernel where one was expected.
    #[error("no kernel with modules in {root}; `cargo xtask setup` unpacks one")]
    NoStockKernel {
        /// The directory of an unpacked package.
        root: PathBuf,
    },
    /// Nothing loads the guest's modules.
    #[error("no `modprobe` in PATH, /usr/sbin or /sbin; on Debian: apt-get install kmod")]
    NoModprobe,
    /// This executable cannot serve as the guest's first process.
    #[error("cannot find this program's own executable, which the sandbox starts as its first process")]
    NoExecutable(#[source] io::Error),
    /// An empty command.
    #[error("no command to run in the sandbox")]
    NoCommand,
    /// A path the guest was to write through to cannot be.
    #[error("{path} cannot be writable in the sandbox: it must be an existing directory other than /")]
    Writable {
        /// The path asked for.
        path: PathBuf,
    },
    /// A working file or socket of the sandbox itself.
    #[error("the sandbox could not {action}")]
    Io {
        /// What was being done.
        action: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The kernel did not come up.
    #[error("the sandbox kernel did not boot within {} s; its last words:\n{console}", limit.as_secs())]
    BootTimeout {
        /// How long it was given.
        limit: Duration,
        /// The end of the console's text.
        console: String,
    },
    /// The kernel ended before its first process could start the command.
    #[error("the sandbox kernel died while it booted; its last words:\n{console}")]
    DiedAtBoot {
        /// The end of the console's text.
        console: String,
    },
    /// The guest came up but could not prepare the command.
    #[error("the sandbox could not {step}: {reason}")]
    Guest {
        /// What the guest was doing.
        step: String,
        /// What the guest's kernel answered.
        reason: String,
    },
    /// The kernel ended before the command did.
    #[error("the sandbox kernel died before the command ended; its last words:\n{console}")]
    Died {
        /// The end of the console's text.
        console: String,
    },
    /// The command did not end in time.
    #[error("the command in the sandbox did not end within {} s and was killed", limit.as_secs_f64())]
    Timeout {
        /// The time it was given.
        limit: Duration,
    },
    /// The command outlived a signal that was passed on to it.
    #[error("stopped by signal {signal}; the command in the sandbox did not end on it and was killed")]
    Interrupted {
        /// The signal's number.
        signal: i32,
    },
    /// Host and guest disagree about the protocol.
    #[error("the sandbox's serial line carried something else than frames")]
    Wire(#[from] WireError),
}

/// A byte stream that is not frames.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum WireError {
    /// Not what a frame holds.
    #[error("a frame is not understood")]
    Frame(#[from] postcard::Error),
    /// A length no one sends.
    #[error("frame of {length} bytes, the limit is {limit}")]
    TooLong {
        /// The length found.
        length: usize,
        /// The longest one accepted.
        limit: usize,
    },
}

/// Names the action that failed.
pub(crate) trait Context<T> {
    fn context(self, action: &'static str) -> Result<T, SandboxError>;
}

impl<T, E: Into<io::Error>> Context<T> for Result<T, E> {
    fn context(self, action: &'static str) -> Result<T, SandboxError> {
        self.map_err(|source| SandboxError::Io {
            action,
            source: source.into(),
        })
    }
}
