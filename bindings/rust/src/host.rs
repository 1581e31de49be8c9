//! A private host, and commands on it.

use std::{
    ffi::{OsStr, OsString},
    net::IpAddr,
    path::Path,
    process::Command,
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

    /// Runs a line for the host's shell to its end; what it printed.
    ///
    /// # Errors
    /// It fails, or it cannot be started.
    pub fn run(&self, line: &str) -> Result<String, Error> {
        let output = self
            .command("sh")
            .args(["-c", line])
            .stdin(std::process::Stdio::null())
            .output()
            .map_err(io(format!("{line} (on {})", self.name)))?;
        let text = |said: &[u8]| String::from_utf8_lossy(said).into_owned();
        if output.status.success() {
            return Ok(text(&output.stdout));
        }
        Err(Error::Command {
            host: self.name.clone(),
            command: line.into(),
            status: output.status,
            out: text(&output.stdout),
            err: text(&output.stderr),
        })
    }
}
