//! Life beside others: foreign locks, numbers of processes that are given again.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::ErrorKind,
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _},
        process::CommandExt as _,
    },
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    fcntl::{FcntlArg, fcntl},
    sys::signal::Signal,
};
use tempfile::TempDir;

use crate::harness::{Setting, Test, each, once};

pub(crate) const TESTS: &[Test] = &[
    once("neighbors::foreign_locks_block_nothing", foreign_locks),
    once("neighbors::who_holds_the_lock_is_named", named).long(),
    once("neighbors::clear_spares_private_hosts", spared),
    each("neighbors::a_reused_number_is_left_alone", reused),
    each("neighbors::a_containers_sysfs_stays_read_only", locked),
];

const REGISTRY: &str = "/run/perturb";
/// The user and group that own nothing.
const NOBODY: u32 = 65534;

/// A process of this test, ended with it.
struct Neighbor(Child);

impl Neighbor {
    fn start(command: &mut Command) -> Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| format!("starting {command:?}"))?;
        Ok(Self(child))
    }

    fn is_alive(&mut self) -> Result<bool> {
        Ok(self.0.try_wait()?.is_none())
    }
}

impl Drop for Neighbor {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `flock` on a file, by nobody.
fn flock(path: &Path) -> Command {
    let mut command = Command::new("flock");
    command
        .args(["--nonblock", "--no-fork", "--exclusive"])
        .arg(path)
        .args(["sleep", "60"])
        .stderr(Stdio::null())
        .uid(NOBODY)
        .gid(NOBODY);
    command
}

/// A lock of this process, which is no perturb.
pub(crate) fn lock(path: &Path) -> Result<File> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)?;
    let lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(&file, FcntlArg::F_OFD_SETLK(&lock)).with_context(|| format!("locking {}", path.display()))?;
    Ok(file)
}

/// Whoever may open a lock can keep others waiting: nobody may, neither now nor where an older perturb left them open.
fn foreign_locks(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let round = || {
        let start = Instant::now();
        let applied = setting.product.apply(&bed.left, "latency: 1ms", setting.pacer)?;
        setting.product.clear(&bed.left)?;
        let took = start.elapsed();
        let (status, said) = applied.ended()?;
        ensure!(status.success(), "{status}: {said}");
        Ok(took)
    };
    let alone = round()?;
    let registry = Path::new(REGISTRY);
    let old = registry.join("lock");
    fs::create_dir_all(registry)?;
    fs::set_permissions(registry, Permissions::from_mode(0o755))?;
    fs::write(&old, "")?;
    fs::set_permissions(&old, Permissions::from_mode(0o644))?;
    let mut neighbor = Neighbor::start(&mut flock(&old))?;
    thread::sleep(Duration::from_millis(500));
    ensure!(neighbor.is_alive()?, "nobody could not lock {}", old.display());
    let took = round()?;
    // Who waits for such a lock does so for 20 s.
    ensure!(
        took < alone + Duration::from_secs(15),
        "waited for nobody: {took:?}, and {alone:?} without a neighbor"
    );
    drop(neighbor);
    fs::remove_file(&old)?;

    let applied = setting.product.apply(&bed.left, "latency: 1ms", setting.pacer)?;
    let mut locks = 0;
    for entry in walk(registry)? {
        let mode = fs::metadata(&entry)?.mode() & 0o777;
        ensure!(
            mode & 0o077 == 0 || entry.extension().is_some(),
            "{} has mode {mode:o}",
            entry.display()
        );
        if entry.is_file() {
            locks += 1;
            let status = flock(&entry).status()?;
            ensure!(!status.success(), "nobody can lock {}", entry.display());
        }
    }
    ensure!(locks >= 2, "there are only {locks} files in {REGISTRY}");
    applied.stop()?;
    before.must_be_that_of(&bed.left)
}

/// All files and directories below one, itself included.
fn walk(directory: &Path) -> Result<Vec<std::path::PathBuf>> {
    let mut found = vec![directory.to_path_buf()];
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(walk(&path)?);
        } else {
            found.push(path);
        }
    }
    Ok(found)
}

/// The message names the process that holds the lock, and no other.
fn named(setting: &Setting) -> Result<()> {
    let (bed, _) = setting.bed()?;
    setting.product.clear(&bed.left)?;
    // What an earlier command may have noted is not to be believed.
    let mut innocent = Neighbor::start(Command::new("sleep").arg("60"))?;
    let path = Path::new(REGISTRY).join("changes");
    fs::write(&path, innocent.0.id().to_string())?;
    let held = lock(&path)?;
    let refused = setting.product.call(&bed.left, &["clear"])?;
    ensure!(refused.code() == 1, "{refused:?}");
    let own = format!("process {} (", std::process::id());
    ensure!(
        refused.stderr.contains(&own),
        "not named as {own}…): {}",
        refused.stderr
    );
    ensure!(
        !refused.stderr.contains(&format!(" {} ", innocent.0.id())) && innocent.is_alive()?,
        "an innocent process is named: {}",
        refused.stderr
    );
    drop(held);
    setting.product.clear(&bed.left)
}

/// `clear` ends what `apply` did, `clear --all` other people's runs, too. All in a registry of its own: what runs on this
/// machine is not the test's.
fn spared(setting: &Setting) -> Result<()> {
    const SCRIPT: &str = r#"
        set -e
        mkdir -p /run/perturb
        mount -t tmpfs none /run/perturb
        applied() { "$P" status --json | grep -c '"id":' || true; }
        until_applied() { n=0; until [ "$(applied)" = "$1" ]; do n=$((n + 1)); [ $n -lt 300 ]; sleep 0.1; done; }
        "$P" run --pacer "$PACER" "$PROFILE" -- sleep 100 & run=$!
        until_applied 1
        "$P" apply "$PROFILE" --iface eth0 --pacer "$PACER" --quiet & apply=$!
        until_applied 2
        "$P" clear
        wait $apply
        until_applied 1
        kill -0 $run
        "$P" status
        "$P" clear --all
        code=0; wait $run || code=$?
        echo "run ended with $code, $(applied) left"
    "#;
    let (bed, before) = setting.bed()?;
    let output = bed
        .left
        .command("unshare")
        .args(["--mount", "sh", "-c", SCRIPT])
        .env("P", &setting.product.path)
        .env("PACER", setting.pacer.name())
        .env("PROFILE", setting.product.profile("latency: 1ms")?)
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success() && text.contains("run ended with 143, 0 left"),
        "{text}{said}"
    );
    ensure!(
        text.contains("h1:eth0, h2:eth0: emulated by"),
        "status does not name the hosts: {text}"
    );
    ensure!(
        said.contains("left h1:eth0, h2:eth0 alone") && said.contains("clear --all"),
        "clear does not say what it left: {said}"
    );
    before.must_be_that_of(&bed.left)
}

/// A controller was killed, and another process has its number now; it must not be ended, even if the emulation's lock seems to
/// be held.
fn reused(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let applied = setting.product.apply(&bed.left, "latency: 1ms", setting.pacer)?;
    let id = applied.counters()?["id"].as_str().context("no id")?.to_owned();
    let pid = applied.pid().as_raw();
    applied.signal(Signal::SIGKILL)?;
    applied.ended()?;
    let directory = Path::new(REGISTRY).join(id);
    let record = directory.join("record.json");
    let mut innocent = Neighbor::start(Command::new("sleep").arg("60"))?;
    let text = fs::read_to_string(&record)?;
    let number = |pid: &dyn std::fmt::Display| format!("\"pid\": {pid},");
    ensure!(text.contains(&number(&pid)), "{text}");
    fs::write(&record, text.replace(&number(&pid), &number(&innocent.0.id())))?;
    let held = lock(&directory.join("owner"))?;
    setting.product.clear(&bed.left)?;
    ensure!(
        innocent.is_alive()?,
        "clear ended a process that is not perturb's"
    );
    drop(held);
    match fs::metadata(&directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        other => {
            other?;
            anyhow::bail!("{} is left", directory.display());
        }
    }
    before.must_be_that_of(&bed.left)
}

/// Engines mount sysfs in a container so that nothing can be written, and a namespace has one sysfs, which perturb writes to.
fn locked(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let place = TempDir::with_prefix("perturb-sysfs-")?;
    let mut command = bed.left.command("unshare");
    command.args([
        "--mount",
        "sh",
        "-c",
        "mount -t sysfs -o ro sysfs \"$0\" && exec sleep 60",
    ]);
    let container = Neighbor::start(command.arg(place.path()))?;
    let mounts = format!("/proc/{}/mountinfo", container.0.id());
    // Flags of the mount, and behind the dash those of the file system.
    let locks = || -> Result<bool> {
        let text = fs::read_to_string(&mounts)?;
        let at = format!(" {} ", place.path().display());
        let line = text.lines().find_map(|line| line.split_once(&at));
        Ok(line.is_some_and(|(_, flags)| flags.starts_with("ro,") && flags.ends_with(" - sysfs sysfs ro")))
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    while !locks()? {
        ensure!(Instant::now() < deadline, "{}", fs::read_to_string(&mounts)?);
        thread::sleep(Duration::from_millis(10));
    }
    let applied = setting.product.apply(&bed.left, "latency: 1ms", setting.pacer)?;
    ensure!(locks()?, "{}", fs::read_to_string(&mounts)?);
    applied.stop()?;
    before.must_be_that_of(&bed.left)
}
