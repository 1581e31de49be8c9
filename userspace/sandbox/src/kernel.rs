//! The guest's kernel as a group of processes that cannot outlive us.
//!
//! Model: the kernel, its helper processes and (in user mode) one traced process per guest process form one process
//! group (the user-mode kernel would otherwise make itself a session of its own). A shell waits for the end of a pipe
//! whose other end only we hold: when we end, by whatever cause, it kills the group and removes the kernel's files.
//! (`PR_SET_PDEATHSIG` would kill the kernel alone, whose helpers survive it, and fires when the *thread* that started
//! it ends.)

use std::{
    env,
    ffi::OsString,
    fs,
    io::{self, PipeReader},
    os::{
        fd::OwnedFd,
        unix::{
            ffi::{OsStrExt as _, OsStringExt as _},
            net::UnixStream,
            process::CommandExt as _,
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use nix::{
    sys::{
        resource::{Resource, setrlimit},
        signal::{Signal, killpg},
        statvfs::{FsFlags, statvfs},
    },
    unistd::{Pid, mkdtemp},
};

use crate::{GuestKernel, Sandbox, SandboxError, Task, error::Context as _, guest::INIT_ARGUMENT};

/// See `shim.rs`.
const SHIM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libperturb_shim.so"));

/// A running kernel. Dropping it kills all of it.
#[derive(Debug)]
pub(crate) struct Kernel {
    kernel: Child,
    watcher: Option<Child>,
    scratch: Scratch,
}

/// Our ends of a running kernel's two channels.
#[derive(Debug)]
pub(crate) struct Channels {
    /// Frames.
    pub(crate) line: UnixStream,
    /// The kernel's messages.
    pub(crate) console: PipeReader,
}

impl Kernel {
    pub(crate) fn boot(
        sandbox: &Sandbox,
        task: &Task,
        writable: &[OsString],
        init: &Path,
    ) -> Result<(Self, Channels), SandboxError> {
        let (line, guest_line) = UnixStream::pair().context("make a socket pair")?;
        let (console, guest_console) = io::pipe().context("make a pipe")?;
        let also_console = guest_console.try_clone().context("share a pipe")?;
        let memory_directory = memory_directory(task.memory_mib);
        let scratch = Scratch::new(&memory_directory)?;

        let mut command = match &sandbox.kernel {
            GuestKernel::UserMode(linux) => {
                let mut command = user_mode(linux, task, init, &scratch.0)?;
                // The guest's memory is a file there that has no name any more once the kernel runs.
                command.env("TMPDIR", &memory_directory).stdout(guest_console);
                command
            }
            GuestKernel::Stock(machine) => {
                let mut command = machine.command(task, writable, init, &scratch.0)?;
                drop(guest_console);
                let line = guest_line.try_clone().context("share a socket")?;
                command.stdout(OwnedFd::from(line));
                command
            }
        };
        command
            .stdin(OwnedFd::from(guest_line))
            .stderr(also_console)
            .process_group(0);
        // SAFETY: setrlimit is async-signal-safe and touches nothing of the parent's.
        unsafe {
            // A panicking user-mode kernel aborts; its core would be the guest's whole memory.
            command.pre_exec(|| Ok(setrlimit(Resource::RLIMIT_CORE, 0, 0)?));
        }
        let kernel = command.spawn().context("start its kernel")?;
        let mut booted = Self {
            kernel,
            watcher: None,
            scratch,
        };
        let watcher = Command::new("/bin/sh")
            .args([
                "-c",
                "read -r _; kill -s KILL -- -$0; rm -rf -- \"$1\"",
                &booted.group().to_string(),
            ])
            .arg(&booted.scratch.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        booted.watcher = Some(watcher.context("start /bin/sh to watch over its kernel")?);
        Ok((booted, Channels { line, console }))
    }

    /// The guest runs its first process: nothing on the host's file system is needed any more.
    pub(crate) fn forget_files(&mut self) {
        self.scratch.remove();
    }

    fn group(&self) -> Pid {
        Pid::from_raw(self.kernel.id().cast_signed())
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // Reaping is last, so that the number means this group until nobody uses it any more.
        if let Err(error) = killpg(self.group(), Signal::SIGKILL) {
            eprintln!(
                "the sandbox's processes (group {}) could not be killed: {error}",
                self.group()
            );
        }
        if let Some(watcher) = &mut self.watcher
            && let Err(error) = watcher.kill().and_then(|()| watcher.wait())
        {
            eprintln!(
                "the sandbox's watcher ({}) could not be ended: {error}",
                watcher.id()
            );
        }
        if let Err(error) = self.kernel.wait() {
            eprintln!(
                "the sandbox's kernel ({}) could not be waited for: {error}",
                self.kernel.id()
            );
        }
    }
}

/// The command that starts a user-mode kernel, with its line on standard input.
fn user_mode(linux: &Path, task: &Task, init: &Path, scratch: &Path) -> Result<Command, SandboxError> {
    fs::write(scratch.join("shim.so"), SHIM).context("write what is preloaded into its kernel")?;
    let mut command = Command::new(linux);
    command
        .args(kernel_arguments(task, init, scratch))
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        // By a relative name: an absolute one may have blanks and colons, at which the list would be split.
        .current_dir(scratch);
    // Its C library must be linux.uml's; a static program brings a shim for that one (userspace/cdylib.rs).
    if cfg!(target_env = "gnu") || option_env!("PERTURB_PRELOAD_FLAGS").is_some() {
        command.env("LD_PRELOAD", "./shim.so");
    }
    Ok(command)
}

fn kernel_arguments(task: &Task, init: &Path, scratch: &Path) -> Vec<OsString> {
    let with_path = |before: &str, path: &Path, after: &str| {
        OsString::from_vec([before.as_bytes(), path.as_os_str().as_bytes(), after.as_bytes()].concat())
    };
    let mut arguments = vec![
        format!("mem={}M", task.memory_mib).into(),
        "rootfstype=hostfs".into(),
        "rootflags=/".into(),
        "rw".into(),
        "con=null".into(),
        "con0=null,fd:1".into(),
        "ssl=null".into(),
        "ssl0=fd:0".into(),
        with_path("uml_dir=", scratch, "/"),
        // The kernel's own quotes, for a path with blanks.
        with_path("init=\"", init, "\""),
    ];
    if !task.verbose {
        arguments.push("quiet".into());
    }
    arguments.extend(["--".into(), INIT_ARGUMENT.into()]);
    arguments
}

/// Where the guest's memory is to be: in memory, unless there is too little of it (containers) or no execution.
fn memory_directory(memory_mib: u32) -> PathBuf {
    let shared = PathBuf::from("/dev/shm");
    let suits = statvfs(&shared).is_ok_and(|info| {
        let free_mib = info.blocks_available().saturating_mul(info.fragment_size()) >> 20;
        free_mib >= u64::from(memory_mib) && !info.flags().contains(FsFlags::ST_NOEXEC)
    });
    if suits { shared } else { env::temp_dir() }
}

/// A directory for the kernel's control socket and the shim; gone once the guest runs, or on drop.
#[derive(Debug)]
struct Scratch(PathBuf);

impl Scratch {
    fn new(parent: &Path) -> Result<Self, SandboxError> {
        mkdtemp(&parent.join("perturb-sandbox-XXXXXX"))
            .map(Self)
            .context("make a directory for its kernel")
    }

    fn remove(&self) {
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                eprintln!("{} could not be removed: {error}", self.0.display());
            }
            _ => {}
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.remove();
    }
}
