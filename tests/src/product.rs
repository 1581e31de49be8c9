//! The executable under test.

use std::{
    env, fs,
    io::{ErrorKind, Read as _},
    os::unix::{
        fs::PermissionsExt as _,
        net::UnixDatagram,
        process::{CommandExt as _, ExitStatusExt as _},
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::LazyLock,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    sys::{
        signal::{Signal, kill},
        stat::{Mode, SFlag, makedev, mknod},
    },
    unistd::Pid,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::bed::{Host, INTERFACE};

/// A user who has no account, and no privilege.
const ORDINARY: &str = "4242";
/// Their registry.
pub const ORDINARY_RECORDS: &str = "/tmp/perturb-4242";
/// How long a command may take to begin or to end.
const PATIENCE: Duration = Duration::from_secs(180);

/// perturb, as built.
#[derive(Debug)]
pub struct Product {
    /// The executable.
    pub path: PathBuf,
    profiles: TempDir,
}

/// Which pacer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pacer {
    /// sch_fq.
    Fq,
    /// A thread of perturb.
    User,
    /// perturb itself joins private hosts, as an ordinary user.
    Switch,
}

impl Pacer {
    /// As `--pacer` takes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fq => "fq",
            Self::User => "user",
            Self::Switch => "switch",
        }
    }
}

/// The path of [`Product::find_or_beside`], for tests that Rust's harness runs.
///
/// # Panics
/// If there is no such file.
#[must_use]
pub fn executable() -> &'static str {
    static PATH: LazyLock<String> = LazyLock::new(|| match Product::find_or_beside() {
        Ok(product) => product.path.display().to_string(),
        Err(error) => panic!("{error:#}"),
    });
    &PATH
}

/// A command whose network, mounts, processes and host name are its own; what it starts ends with it.
#[must_use]
pub fn apart() -> Command {
    let mut command = Command::new("unshare");
    command.args([
        "--net",
        "--mount",
        "--uts",
        "--pid",
        "--fork",
        "--mount-proc",
        "--kill-child",
    ]);
    command
}

/// A shell script [`apart`], with `lo` up and a `/run` of its own; a command that fails ends it, until it says `set +e`.
#[must_use]
pub fn script_apart(script: &str) -> Command {
    let mut command = apart();
    command.args(["bash", "-c", &format!("{APART}{script}")]);
    command
}

const APART: &str =
    "set -e; ip link set lo up; mount -t tmpfs run /run; mkdir -p /run/perturb /run/lock /run/netns\n";

impl Product {
    /// The executable that the environment variable PERTURB_BIN names.
    pub fn find() -> Result<Self> {
        let Some(path) = env::var_os("PERTURB_BIN") else {
            bail!("PERTURB_BIN does not name the perturb executable; `cargo xtask test` sets it");
        };
        Self::at(Path::new(&path))
    }

    /// As [`Self::find`], or else the `perturb` that cargo built with this executable: beside it, or above a test's `deps`.
    pub fn find_or_beside() -> Result<Self> {
        if env::var_os("PERTURB_BIN").is_some() {
            return Self::find();
        }
        let this = env::current_exe().context("finding this executable")?;
        let mut directory = this.parent().context("this executable has no directory")?;
        if directory.ends_with("deps") {
            directory = directory.parent().unwrap_or(directory);
        }
        Self::at(&directory.join("perturb")).context("`cargo build --package perturb` makes it")
    }

    /// Copies it. Another program does: what other threads start meanwhile would have a file of this one's open for writing, and it
    /// could not be run (`ETXTBSY`).
    pub fn copy(&self, to: &Path) -> Result<()> {
        let copied = Command::new("cp").arg(&self.path).arg(to).status();
        ensure!(
            copied.context("starting cp")?.success(),
            "cp to {} failed",
            to.display()
        );
        Ok(())
    }

    /// perturb, by the user who is to run it with this pacer: one without any privilege for the switch. That one has a
    /// /dev/net/tun which is open to all, as it usually is.
    pub fn command(&self, pacer: Pacer) -> Result<Command> {
        if pacer != Pacer::Switch {
            return Ok(Command::new(&self.path));
        }
        let everybodys = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755));
        everybodys(self.profiles.path())?;
        let tun = self.profiles.path().join("tun");
        if !tun.exists() {
            let device = makedev(10, 200);
            let mode = Mode::from_bits_truncate(0o666);
            mknod(&tun, SFlag::S_IFCHR, mode, device).context("making a node of /dev/net/tun")?;
            fs::set_permissions(&tun, fs::Permissions::from_mode(0o666))?;
        }
        let mut command = Command::new("setpriv");
        command.args(["--reuid", ORDINARY, "--regid", ORDINARY, "--clear-groups"]);
        command.args(["--bounding-set=-all", "--inh-caps=-all"]);
        command.arg(&self.path);
        command.env_remove("XDG_RUNTIME_DIR").env("HOME", "/tmp");
        let open = move || -> std::io::Result<()> {
            let none: Option<&str> = None;
            unshare(CloneFlags::CLONE_NEWNS)?;
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
            mount(Some(&tun), "/dev/net/tun", none, MsFlags::MS_BIND, none)?;
            Ok(())
        };
        // SAFETY: the closure makes system calls, whose arguments nix copies to its stack.
        unsafe { command.pre_exec(open) };
        Ok(command)
    }

    fn at(path: &Path) -> Result<Self> {
        let path =
            fs::canonicalize(path).with_context(|| format!("perturb executable {}", path.display()))?;
        Ok(Self {
            path,
            profiles: TempDir::with_prefix("perturb-tests-")?,
        })
    }

    /// Writes a profile; its path.
    pub fn profile(&self, text: &str) -> Result<PathBuf> {
        let text = if text.contains("version:") {
            text.to_owned()
        } else {
            format!("version: 1\n{text}")
        };
        let (_, path) = tempfile::Builder::new()
            .suffix(".yaml")
            .tempfile_in(&self.profiles)?
            .keep()?;
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
        Ok(path)
    }

    /// A command of it on a host.
    #[must_use]
    pub fn on(&self, host: &Host) -> Command {
        host.command(&self.path)
    }

    /// Runs a command of it on a host to its end.
    pub fn call(&self, host: &Host, arguments: &[&str]) -> Result<Called> {
        let output = self
            .on(host)
            .args(arguments)
            .output()
            .context("running perturb")?;
        Ok(Called {
            status: output.status,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Puts a host's interface under emulation, in the foreground of a process of its own; returns when
    /// the emulation runs.
    pub fn apply<'a>(&'a self, host: &'a Host, profile: &str, pacer: Pacer) -> Result<Applied<'a>> {
        self.apply_with(host, profile, pacer, &[])
    }

    /// As [`Self::apply`], with more arguments.
    pub fn apply_with<'a>(
        &'a self,
        host: &'a Host,
        profile: &str,
        pacer: Pacer,
        arguments: &[&str],
    ) -> Result<Applied<'a>> {
        self.apply_to(host, INTERFACE, profile, pacer, arguments)
    }

    /// As [`Self::apply_with`], to another interface.
    pub fn apply_to<'a>(
        &'a self,
        host: &'a Host,
        interface: &str,
        profile: &str,
        pacer: Pacer,
        arguments: &[&str],
    ) -> Result<Applied<'a>> {
        const TICK: Duration = Duration::from_millis(20);
        let profile = self.profile(profile)?;
        // It says when it has begun, as to a service manager: to ask `perturb status` again and again would take the processor
        // that it needs.
        let told = TempDir::with_prefix_in("notify-", &self.profiles)?;
        let path = told.path().join("socket");
        let socket = UnixDatagram::bind(&path).context("making a socket to be told on")?;
        socket.set_read_timeout(Some(TICK))?;
        let child = self
            .on(host)
            .env("NOTIFY_SOCKET", &path)
            .arg("apply")
            .arg(&profile)
            .args(["--iface", interface, "--pacer", pacer.name(), "--quiet"])
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting perturb apply")?;
        let mut applied = Applied {
            product: self,
            host,
            child: Some(child),
        };
        let start = Instant::now();
        let mut word = [0; 64];
        let mut ready = false;
        loop {
            // Whoever renews the lease may be kept from running for longer than a short one lasts.
            if ready
                && applied
                    .report()?
                    .is_some_and(|report| report["lease_left_ms"].as_u64() != Some(0))
            {
                return Ok(applied);
            }
            match socket.recv(&mut word) {
                Ok(length) if word.get(..length) == Some(b"READY=1") => ready = true,
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error).context("waiting for perturb apply"),
            }
            if let Some(child) = &mut applied.child
                && let Some(status) = child.try_wait()?
            {
                let said = said(child);
                applied.child = None;
                bail!("perturb apply ended with {status}: {said}");
            }
            ensure!(start.elapsed() < PATIENCE, "perturb apply does not begin");
        }
    }

    /// `perturb clear` of a host's interface.
    pub fn clear(&self, host: &Host) -> Result<()> {
        let called = self.call(host, &["clear", "--iface", INTERFACE])?;
        ensure!(called.code() == 0, "perturb clear: {called:?}");
        Ok(())
    }

    /// `perturb status --json`.
    pub fn status(&self, host: &Host) -> Result<Vec<Value>> {
        let called = self.call(host, &["status", "--json"])?;
        // While an emulation comes or goes its parts may be missing for a moment.
        if !called.status.success() {
            return Ok(Vec::new());
        }
        match serde_json::from_str(&called.stdout)? {
            Value::Array(reports) => Ok(reports),
            other => bail!("perturb status --json printed {other}"),
        }
    }
}

fn said(child: &mut Child) -> String {
    let mut text = String::new();
    if let Some(stderr) = &mut child.stderr {
        // What cannot be read is missing from a message only.
        let _ = stderr.read_to_string(&mut text);
    }
    text
}

/// A command that has ended.
#[derive(Debug)]
pub struct Called {
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Called {
    /// Its exit code, or 128 plus the signal that ended it.
    #[must_use]
    pub fn code(&self) -> i32 {
        self.status
            .code()
            .unwrap_or_else(|| 128 + self.status.signal().unwrap_or_default())
    }
}

/// An emulation that a process of its own keeps up. Dropping it kills that process and clears.
#[derive(Debug)]
pub struct Applied<'a> {
    product: &'a Product,
    host: &'a Host,
    child: Option<Child>,
}

impl Applied<'_> {
    /// Its process.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.as_ref().map_or(0, |child| child.id().cast_signed()))
    }

    /// What `perturb status` says of it, if anything.
    pub fn report(&self) -> Result<Option<Value>> {
        let pid = i64::from(self.pid().as_raw());
        Ok(self
            .product
            .status(self.host)?
            .into_iter()
            .find(|report| report["pid"].as_i64() == Some(pid)))
    }

    /// What `perturb status` says of it now.
    pub fn counters(&self) -> Result<Value> {
        self.report()?
            .context("perturb status does not know the emulation")
    }

    /// Fails if packets were dropped that the profile does not drop.
    pub fn nothing_unintended(&self) -> Result<()> {
        let refused = self.nothing_but_refused()?;
        ensure!(refused == 0, "the hold device had no room for {refused} packets");
        Ok(())
    }

    /// The same after more packets than the pacer carries: how many the hold device had no room for.
    pub fn nothing_but_refused(&self) -> Result<u64> {
        let mut report = self.counters()?;
        let unintended = report["unintended"]
            .as_object_mut()
            .context("no unintended drops are reported")?;
        let refused = unintended
            .remove("hold_device")
            .and_then(|count| count.as_u64())
            .context("what the hold device drops is not reported")?;
        ensure!(
            unintended.values().all(|count| count == 0),
            "packets were dropped that should not be: {unintended:?}"
        );
        Ok(refused)
    }

    /// Sends a signal to its process. SIGSTOP is there when all its threads stand: until its first one has run, the others
    /// go on (`complete_signal`).
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill(self.pid(), signal)?;
        let start = Instant::now();
        while signal == Signal::SIGSTOP && !self.stands()? {
            ensure!(start.elapsed() < Duration::from_secs(60), "it does not stop");
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Whether all its threads are stopped.
    fn stands(&self) -> Result<bool> {
        for task in fs::read_dir(format!("/proc/{}/task", self.pid()))? {
            let stat = fs::read_to_string(task?.path().join("stat"))?;
            // Behind its name, which may have parentheses.
            let state = stat.rsplit(") ").next().unwrap_or_default();
            if !state.starts_with('T') {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits for its end, at most three minutes; what it said on standard error.
    pub fn ended(mut self) -> Result<(ExitStatus, String)> {
        let Some(mut child) = self.child.take() else {
            bail!("the process is gone")
        };
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if start.elapsed() > PATIENCE {
                let _ = child.kill();
                bail!("perturb apply does not end");
            }
            thread::sleep(Duration::from_millis(2));
        };
        let text = said(&mut child);
        Ok((status, text))
    }

    /// Ends it as Ctrl-C does.
    pub fn stop(self) -> Result<()> {
        self.signal(Signal::SIGINT)?;
        let (status, text) = self.ended()?;
        ensure!(status.success(), "perturb apply ended with {status}: {text}");
        Ok(())
    }
}

impl Drop for Applied<'_> {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        // The test has failed already; the next command would clear as well.
        let _ = child.kill();
        let _ = child.wait();
        let _ = self.product.clear(self.host);
    }
}
