//! Runs a command inside a user-mode kernel on a copy-on-write view of this machine's files.
//!
//! Model: Debian's `linux.uml` is a whole Linux kernel in an ordinary process. It boots in about 1.5 s, needs
//! no privilege, and has what the machine's own kernel may lack (`sch_fq`, `netem`). Inside, the command is
//! root on a kernel of its own; it sees the host's files, may load modules, make namespaces and devices, and
//! whatever it writes is gone afterwards, except below the directories in [`Task::writable`].
//!
//! Standard streams, signals, terminal and exit status pass through. What is left when the command ends, or when
//! this process dies by whatever cause, is nothing: no process, no file.
//!
//! It lacks: more than one CPU, a network to the outside, a BPF JIT and BTF (both are properties of the kernel),
//! and protection against a malicious command, which has the caller's rights on the host's files.
//!
//! A distribution's stock kernel has several CPUs, JIT and BTF: [`Sandbox::stock`] boots one in qemu, where the rest is
//! the same, but takes 8 s, and everything is slower (`machine.rs`).

mod entry;
mod error;
mod guest;
mod host;
mod initramfs;
mod kernel;
mod machine;
#[cfg(test)]
mod shim;
mod signals;
mod terminal;
mod view;
mod wire;

use std::{
    env,
    ffi::OsString,
    io,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::ExitStatus,
    time::Duration,
};

pub use error::{SandboxError, WireError};
pub use guest::init_hook;
use machine::Machine;

/// A command and the conditions it runs under.
#[derive(Debug, Clone)]
pub struct Task {
    /// Program, looked up in PATH, and arguments.
    pub argv: Vec<OsString>,
    /// The command's environment, all of it.
    pub env: Vec<(OsString, OsString)>,
    /// The directory the command starts in.
    pub cwd: PathBuf,
    /// Directories whose changes are the host's; all other changes are forgotten.
    pub writable: Vec<PathBuf>,
    /// The guest's memory in MiB, which also holds what it writes. Taken from the host as it is used.
    pub memory_mib: u32,
    /// How long the command may run; boot is not counted.
    pub timeout: Option<Duration>,
    /// Whether the guest kernel's messages go to standard error.
    pub verbose: bool,
}

impl Task {
    /// A command with this process's environment and directory; the latter is writable unless it is `/`.
    pub fn new(argv: impl IntoIterator<Item = OsString>) -> io::Result<Self> {
        let cwd = env::current_dir()?;
        Ok(Self {
            argv: argv.into_iter().collect(),
            env: env::vars_os().collect(),
            writable: if cwd == Path::new("/") {
                Vec::new()
            } else {
                vec![cwd.clone()]
            },
            cwd,
            memory_mib: 1024,
            timeout: None,
            verbose: false,
        })
    }
}

/// A machine with another processor than this one, whose programs cannot run there.
#[derive(Debug, Clone)]
pub struct Other {
    /// Its processor, as rustc names it.
    pub processor: String,
    /// What it sees as its root directory: files for it. Empty directories are made there, at which it sees what is shared.
    pub files: PathBuf,
    /// Its first process: a static executable that calls [`init_hook`] first in `main`.
    pub init: PathBuf,
}

/// A kernel that was found on this machine.
#[derive(Debug, Clone)]
pub struct Sandbox {
    kernel: GuestKernel,
    modules: PathBuf,
    modprobe: PathBuf,
}

/// What the guest runs on.
#[derive(Debug, Clone)]
enum GuestKernel {
    /// A user-mode kernel: the path of `linux.uml`.
    UserMode(PathBuf),
    /// A distribution's kernel on emulated processors.
    Stock(Machine),
}

impl Sandbox {
    /// Looks for the user-mode kernel, its modules, and the program that loads them.
    pub fn find() -> Result<Self, SandboxError> {
        let kernel = find_program("linux.uml").ok_or(SandboxError::NoKernel)?;
        // /usr/bin/linux.uml has its modules in /usr/lib/uml/modules/VERSION.
        let prefix = kernel.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
        let modules = prefix.join("lib/uml/modules");
        if !modules
            .read_dir()
            .is_ok_and(|mut versions| versions.next().is_some())
        {
            return Err(SandboxError::NoModules {
                kernel,
                directory: modules,
            });
        }
        Ok(Self {
            kernel: GuestKernel::UserMode(kernel),
            modules,
            modprobe: find_program("modprobe").ok_or(SandboxError::NoModprobe)?,
        })
    }

    /// Looks for qemu, and for a stock kernel in `root`, the directory where a distribution's package was unpacked
    /// (`boot/vmlinuz-RELEASE`, `lib/modules/RELEASE` with what depmod makes). The guest will have `cpus` processors.
    pub fn stock(root: &Path, cpus: u8) -> Result<Self, SandboxError> {
        Self::stock_on(root, cpus, None)
    }

    /// The same, on another processor if one is given.
    pub fn stock_on(root: &Path, cpus: u8, other: Option<Other>) -> Result<Self, SandboxError> {
        let modprobe = find_program("modprobe").ok_or(SandboxError::NoModprobe)?;
        let machine = Machine::find(root, modprobe.clone(), cpus, other)?;
        Ok(Self {
            modules: machine.modules(),
            kernel: GuestKernel::Stock(machine),
            modprobe,
        })
    }

    /// The same, of a stock kernel, with a clock by which each instruction takes 2 ns: while this machine is busy with something
    /// else, the guest's time stands still. For one processor.
    #[must_use]
    pub fn counted(mut self) -> Self {
        if let GuestKernel::Stock(machine) = &mut self.kernel {
            machine.counted = true;
        }
        self
    }

    /// Runs the task to its end and returns its status, its streams connected to this process's own.
    ///
    /// While it runs, SIGINT, SIGTERM and SIGHUP sent to this process go to the command; a second one, or a
    /// command that has not ended 5 s later, ends the sandbox. The executable must call [`init_hook`] first in
    /// `main`.
    pub fn run(&self, task: &Task) -> Result<ExitStatus, SandboxError> {
        let executable = match &self.kernel {
            GuestKernel::Stock(machine) => machine.init().map(Path::to_owned),
            GuestKernel::UserMode(_) => None,
        };
        let executable =
            executable.map_or_else(|| env::current_exe().map_err(SandboxError::NoExecutable), Ok)?;
        host::run(self, task, &executable)
    }
}

/// The exit code a shell would report: the command's own, or 128 plus the signal that ended it.
#[must_use]
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    // Exit codes have 8 bits and signals 7, so that neither conversion fails.
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// An executable in PATH, or where administrators' programs are when PATH is an ordinary user's.
fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/bin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_the_shell_s() {
        assert_eq!(exit_code(ExitStatus::from_raw(0)), 0);
        assert_eq!(exit_code(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(exit_code(ExitStatus::from_raw(255 << 8)), 255);
        assert_eq!(exit_code(ExitStatus::from_raw(9)), 137);
    }
}
