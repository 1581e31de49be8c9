//! A private host, and commands on it.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{Read as _, Seek as _},
    net::IpAddr,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

use crate::error::{Error, io};

/// A private host of a network. Commands on it see its addresses and names, and this machine's files.
#[derive(Clone, Debug)]
pub struct Host {
    name: String,
    addresses: Vec<IpAddr>,
    /// `perturb on --run ID`.
    prefix: Vec<OsString>,
}

impl Host {
    pub(crate) fn new(name: &str, addresses: Vec<IpAddr>, program: &Path, run: &str, as_root: bool) -> Self {
        let words = ["on", "--run", run].map(OsString::from);
        let mut prefix = vec![program.into()];
        prefix.extend(words);
        prefix.extend(as_root.then(|| "--as-root".into()));
        Self {
            name: name.into(),
            addresses,
            prefix,
        }
    }

    /// `h1`, `h2`, …: the other hosts find it by this name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its addresses, IPv4 and IPv6.
    #[must_use]
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// A program to be run on this host. What it starts ends with the network at the latest.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(&self.prefix[0]);
        command
            .args(&self.prefix[1..])
            .args([&self.name, "--"])
            .arg(program);
        command
    }

    /// Runs a line for the host's shell to its end, however long that takes; what it printed.
    ///
    /// # Errors
    /// It fails, or it cannot be started.
    pub fn run(&self, line: &str) -> Result<String, Error> {
        self.finish(line, None)
    }

    /// Runs a line for the host's shell; after `limit`, it and all that it started is killed.
    ///
    /// # Errors
    /// It fails, it takes longer, or it cannot be started.
    pub fn run_within(&self, limit: Duration, line: &str) -> Result<String, Error> {
        self.finish(line, Some(limit))
    }

    fn finish(&self, line: &str, limit: Option<Duration>) -> Result<String, Error> {
        let named = || format!("{line} (on {})", self.name);
        // Files, for what outlives the line would hold a pipe open.
        let file = || tempfile::tempfile().map_err(io("making a file"));
        let (out, err) = (file()?, file()?);
        let mut command = self.command("sh");
        command
            .args(["-c", line])
            .stdin(Stdio::null())
            .stdout(out.try_clone().map_err(io("making a file"))?)
            .stderr(err.try_clone().map_err(io("making a file"))?);
        // Without a limit Ctrl-C is for the line as well.
        if limit.is_some() {
            command.process_group(0);
        }
        let mut child = command.spawn().map_err(io(named()))?;
        let deadline = limit.map(|limit| Instant::now() + limit);
        let mut slow = false;
        let status = match deadline {
            None => child.wait().map_err(io(named()))?,
            Some(deadline) => loop {
                if let Some(status) = child.try_wait().map_err(io(named()))? {
                    break status;
                }
                if Instant::now() >= deadline {
                    slow = true;
                    // Not reaped yet, so the group is its own still.
                    let _ = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
                    break child.wait().map_err(io(named()))?;
                }
                thread::sleep(PAUSE);
            },
        };
        let (out, err) = (text(&out), text(&err));
        let (host, command) = (self.name.clone(), line.to_owned());
        match limit {
            Some(limit) if slow => Err(Error::Slow {
                host,
                command,
                limit,
                out,
                err,
            }),
            _ if status.success() => Ok(out),
            _ => Err(Error::Command {
                host,
                command,
                status,
                out,
                err,
            }),
        }
    }
}

/// How often a command with a limit is looked at.
const PAUSE: Duration = Duration::from_millis(5);

/// What was written to a file so far.
fn text(mut file: &File) -> String {
    let mut said = Vec::new();
    // A file without a name, so that nothing but the memory can be missing.
    let _ = file.rewind().and_then(|()| file.read_to_end(&mut said));
    String::from_utf8_lossy(&said).into_owned()
}
