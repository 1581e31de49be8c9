//! What a network is to be.

use std::{
    env,
    ffi::OsString,
    io::{self as stdio, Write as _},
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Command, Stdio},
    sync::{Mutex, mpsc},
    thread,
    time::Duration,
};

use crate::{
    error::{Error, io, refusal},
    host::Host,
    network::Network,
    running::{Running, addresses, listen},
};

/// How long the hosts may take to be there, unless a builder says otherwise.
const START: Duration = Duration::from_secs(120);
/// Prints whom the hosts know, and lasts until there is a line, or whoever would write it is gone.
const KEEPER: &str = r"cat /etc/hosts; printf '\0'; read line || :";

/// What a network is to be; [`Network::of`] makes one.
#[derive(Clone, Debug)]
#[must_use = "a network begins with `within` or `start`"]
pub struct Builder {
    program: PathBuf,
    profile: Profile,
    hosts: u32,
    expect_traffic: bool,
    allow_faults: bool,
    as_root: bool,
    limit: Duration,
    options: Vec<OsString>,
}

#[derive(Clone, Debug)]
pub(crate) enum Profile {
    /// A name or a file.
    Named(PathBuf),
    /// YAML.
    Text(String),
}

impl Builder {
    pub(crate) fn new(profile: Profile) -> Self {
        Self {
            program: env::var_os("PERTURB_BIN").map_or_else(|| "perturb".into(), PathBuf::from),
            profile,
            hosts: 2,
            expect_traffic: true,
            allow_faults: false,
            as_root: false,
            limit: START,
            options: Vec::new(),
        }
    }

    /// Where perturb is: what PERTURB_BIN names, else on PATH, unless this says otherwise.
    pub fn program(mut self, perturb: impl Into<PathBuf>) -> Self {
        self.program = perturb.into();
        self
    }

    /// How many hosts it has; two unless this says otherwise.
    pub fn hosts(mut self, count: u32) -> Self {
        self.hosts = count;
        self
    }

    /// Whether a network without traffic is an error; it is unless this says otherwise.
    pub fn expect_traffic(mut self, expect: bool) -> Self {
        self.expect_traffic = expect;
        self
    }

    /// Whether packets may meet what no profile asks for; they may not unless this says otherwise.
    pub fn allow_faults(mut self, allow: bool) -> Self {
        self.allow_faults = allow;
        self
    }

    /// Whether commands stay root's under sudo; they belong to whoever called it unless this says otherwise.
    pub fn as_root(mut self, as_root: bool) -> Self {
        self.as_root = as_root;
        self
    }

    /// How long the hosts may take to be there; two minutes unless this says otherwise.
    pub fn ready_within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// One more word for `perturb run`, such as `--pacer=user`.
    pub fn option(mut self, word: impl Into<OsString>) -> Self {
        self.options.push(word.into());
        self
    }

    /// Runs a test over the network, and ends it.
    ///
    /// # Errors
    /// The test's own, which comes first; else [`Error`].
    pub fn within<T, E: From<Error>>(self, test: impl FnOnce(&Network) -> Result<T, E>) -> Result<T, E> {
        let network = self.start()?;
        let done = test(&network)?;
        network.end()?;
        Ok(done)
    }

    /// Makes the hosts.
    ///
    /// # Errors
    /// There can be none here, or perturb refuses.
    pub fn start(self) -> Result<Network, Error> {
        let program = self.program;
        let said = tempfile::tempfile().map_err(io("making a file"))?;
        let mut file = tempfile::Builder::new();
        let mut file = file
            .prefix("profile-")
            .suffix(".yaml")
            .tempfile()
            .map_err(io("making a file"))?;
        let profile = match &self.profile {
            Profile::Named(name) => name.clone(),
            Profile::Text(text) => {
                file.write_all(text.as_bytes()).map_err(io("writing a file"))?;
                file.path().into()
            }
        };
        let mut run = Command::new(&program)
            .arg("run")
            .arg(profile)
            .args(["--report", "/dev/stdout", "--hosts", &self.hosts.to_string()])
            .args(self.as_root.then_some("--as-root"))
            .args(&self.options)
            .args(["--", "sh", "-c", KEEPER])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(said.try_clone().map_err(io("making a file"))?)
            // Ctrl-C is for this process, with which it ends.
            .process_group(0)
            .spawn()
            .map_err(|error| match error.kind() {
                stdio::ErrorKind::NotFound => Error::Missing(format!(
                    "there is no program {}: install perturb, or let PERTURB_BIN name it",
                    program.display()
                )),
                _ => io(format!("starting {}", program.display()))(error),
            })?;
        let id = format!("run-{}", run.id());
        let stdin = run.stdin.take();
        let (tell, known) = mpsc::channel();
        let reader = run
            .stdout
            .take()
            .map(|stdout| thread::spawn(move || listen(stdout, &tell)));
        let mut network = Network {
            socket: format!("/run/perturb/{id}/api"),
            hosts: Vec::new(),
            expect_traffic: self.expect_traffic,
            allow_faults: self.allow_faults,
            running: Some(Running {
                run: Mutex::new(run),
                stdin,
                reader,
            }),
            said,
            id,
        };
        match known.recv_timeout(self.limit) {
            Ok(text) => {
                let known = addresses(&text);
                let host = |number| {
                    let name = format!("h{number}");
                    let addresses = known.get(&name).cloned().unwrap_or_default();
                    Host::new(&name, addresses, &program, &network.id, self.as_root)
                };
                network.hosts = (1..=self.hosts).map(host).collect();
                Ok(network)
            }
            Err(error) => {
                let late = error == mpsc::RecvTimeoutError::Timeout;
                let ended = network.running.take().map(Running::end).transpose()?;
                let said = network.words();
                Err(match ended {
                    Some((status, _)) if !late => refusal(status, said),
                    _ => Error::Late {
                        limit: self.limit,
                        said,
                    },
                })
            }
        }
    }
}
