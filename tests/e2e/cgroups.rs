//! Packets by the cgroup of their sender.

use std::{
    fs, io,
    net::{IpAddr, TcpListener},
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::Command,
    thread,
};

use anyhow::{Context as _, Result, ensure};
use nix::mount::{MsFlags, mount};
use perturb_tests::bed::{Bed, Family, Host, INTERFACE};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    harness::{Setting, Test, each, once, skip},
    update::wait,
};

pub(crate) const TESTS: &[Test] = &[
    each("cgroups::senders_have_their_delays", delays),
    each("cgroups::super_packets_keep_their_sender", streams),
    once("cgroups::one_that_is_made_anew_is_found", anew),
];

/// cgroups of a test's own.
struct Own {
    /// Where cgroup2 is mounted, if the test did it.
    _mount: Option<TempDir>,
    root: PathBuf,
    /// The one that has them.
    name: String,
}

impl Own {
    /// Makes these, parents first.
    fn new(setting: &Setting, cgroups: &[&str]) -> Result<Self> {
        let mounts = fs::read_to_string("/proc/thread-self/mountinfo")?;
        let mounted = mounts.lines().rev().find_map(|line| {
            let (place, kind) = line.split_once(" - ")?;
            let mut fields = place.split(' ').skip(3);
            (fields.next()? == "/" && kind.starts_with("cgroup2 ")).then(|| fields.next())?
        });
        let (own, root) = match mounted {
            Some(root) => (None, PathBuf::from(root)),
            None => {
                let directory = TempDir::with_prefix("perturb-cgroup2-")?;
                mount(
                    None::<&str>,
                    directory.path(),
                    Some("cgroup2"),
                    MsFlags::empty(),
                    None::<&str>,
                )
                .map_err(|error| skip(format!("no cgroup2 can be mounted: {error}")))?;
                let root = directory.path().to_owned();
                (Some(directory), root)
            }
        };
        let test = setting.test.rsplit("::").next().unwrap_or_default();
        let name = format!("perturb-{}-{test}-{}", std::process::id(), setting.pacer.name());
        let own = Self {
            _mount: own,
            root,
            name,
        };
        fs::create_dir(own.root.join(&own.name))
            .map_err(|error| skip(format!("no cgroup can be made: {error}")))?;
        for cgroup in cgroups {
            own.make(cgroup)?;
        }
        Ok(own)
    }

    fn path(&self, cgroup: &str) -> PathBuf {
        self.root.join(&self.name).join(cgroup)
    }

    fn make(&self, cgroup: &str) -> Result<()> {
        fs::create_dir(self.path(cgroup)).with_context(|| format!("making cgroup {cgroup}"))
    }

    /// A command that will run in one of them.
    fn command(&self, host: &Host, cgroup: &str, program: &str) -> Command {
        let procs = self.path(cgroup).join("cgroup.procs");
        let mut command = host.command(program);
        // SAFETY: one system call per step, and the path was made before.
        unsafe { command.pre_exec(move || fs::write(&procs, "0")) };
        command
    }

    /// The least round trip of some pings from one of them, ms.
    fn ping(&self, bed: &Bed, cgroup: &str, family: Family) -> Result<f64> {
        let to = bed.right.address(family).to_string();
        let mut ping = self.command(&bed.left, cgroup, "ping");
        let output = ping.args(["-c", "3", "-i", "0.05", "-q", &to]).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let least = text
            .rsplit(" = ")
            .next()
            .and_then(|times| times.split('/').next());
        let least = least.and_then(|least| least.trim().parse().ok());
        least.with_context(|| format!("ping in {cgroup}: {output:?}"))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        fn remove(directory: &std::path::Path) -> io::Result<()> {
            for entry in fs::read_dir(directory)?.flatten() {
                if entry.file_type()?.is_dir() {
                    remove(&entry.path())?;
                }
            }
            fs::remove_dir(directory)
        }
        // A process may take a moment to be gone from it.
        let own = self.root.join(&self.name);
        for _ in 0..50 {
            if remove(&own).is_ok() {
                break;
            }
            thread::sleep(std::time::Duration::from_millis(20));
        }
        if let Some(mount) = &self._mount {
            let _ = nix::mount::umount2(mount.path(), nix::mount::MntFlags::MNT_DETACH);
        }
    }
}

/// Of `a` and below 20 ms, of `a/inner/own` 40 ms, of `b` 60 ms; another way of two legs, which all cross.
fn profile(own: &Own, more: &str) -> String {
    let name = &own.name;
    format!(
        "{more}
servers:
  t15: {{ latency: 15ms, scope: shared, gap: 1us }}
  t35: {{ latency: 35ms, scope: shared, gap: 1us }}
  t55: {{ latency: 55ms, scope: shared, gap: 1us }}
  t5: {{ latency: 5ms, scope: shared, gap: 1us }}
classes:
  - {{ name: own, match: {{ cgroup: {name}/a/inner/own }}, egress: [t35, t5] }}
  - {{ name: a, match: {{ cgroup: /{name}/a }}, egress: [t15, t5] }}
  - {{ name: b, match: {{ cgroup: [{name}/b, {name}/nobody] }}, egress: [t55, t5] }}
  - {{ name: rest, egress: [] }}
"
    )
}

const CGROUPS: [&str; 5] = ["a", "a/inner", "a/inner/own", "b", "c"];

fn is(setting: &Setting, delay: f64, expected: f64) -> bool {
    delay > expected - setting.early_us() / 1e3 && delay < expected + 8.0
}

/// Each cgroup has its delay to one and the same destination; the deepest that is named counts, and those below it.
fn delays(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let own = Own::new(setting, &CGROUPS)?;
    let applied = setting
        .product
        .apply(&bed.left, &profile(&own, ""), setting.pacer)?;
    for family in [Family::V4, Family::V6] {
        for (cgroup, expected) in [
            ("a", 20.0),
            ("b", 60.0),
            ("a/inner", 20.0),
            ("a/inner/own", 40.0),
            ("c", 0.0),
        ] {
            let delay = own.ping(&bed, cgroup, family)?;
            ensure!(
                is(setting, delay, expected),
                "{cgroup}: {delay} ms and not {expected}"
            );
        }
    }
    applied.nothing_unintended()?;
    applied.stop()?;
    before.must_be_that_of(&bed.left)
}

/// What `class` has sent, bytes.
fn sent(report: &Value, class: &str) -> u64 {
    let classes = report["classes"].as_array().into_iter().flatten();
    let bytes = classes.filter(|one| one["name"] == class);
    bytes.filter_map(|one| one["egress"]["bytes"].as_u64()).sum()
}

/// Two streams side by side from two cgroups: nothing of one is in the class of the other, be super-packets split or not.
fn streams(setting: &Setting) -> Result<()> {
    const BYTES: u64 = 2_000_000;
    let (bed, before) = setting.bed()?;
    let own = Own::new(setting, &CGROUPS)?;
    for segmentation in ["exact", "whole"] {
        let profile = profile(&own, &format!("segmentation: {segmentation}"));
        let applied = setting.product.apply(&bed.left, &profile, setting.pacer)?;
        let to: IpAddr = bed.right.address(Family::V4);
        let listener = bed.right.enter(|| TcpListener::bind((to, 0)))??;
        let port = listener.local_addr()?.port();
        let script = format!("head -c {BYTES} /dev/zero > /dev/tcp/{to}/{port}");
        let mut senders = Vec::new();
        for cgroup in ["a", "b"] {
            senders.push(
                own.command(&bed.left, cgroup, "bash")
                    .args(["-c", &script])
                    .spawn()?,
            );
        }
        let mut received = Vec::new();
        for _ in 0..2 {
            let (mut stream, _) = listener.accept()?;
            received.push(thread::spawn(move || io::copy(&mut stream, &mut io::sink())));
        }
        for stream in received {
            let bytes = stream
                .join()
                .map_err(|_| anyhow::anyhow!("the receiver panicked"))??;
            ensure!(bytes == BYTES, "{bytes} bytes arrived");
        }
        for mut sender in senders {
            ensure!(sender.wait()?.success(), "a sender failed");
        }
        let report = applied.counters()?;
        let [a, b, rest] = ["a", "b", "rest"].map(|class| sent(&report, class));
        ensure!(
            a > BYTES && b > BYTES,
            "{segmentation}: {a} bytes in a, {b} in b: {report}"
        );
        // The last acknowledgments of a connection may be the kernel's own.
        ensure!(rest < 10_000, "{segmentation}: {rest} bytes of nobody: {report}");
        let split = report["notes"]["split"].as_u64().or(report["split"].as_u64());
        ensure!(
            split.is_none_or(|split| (split > 0) == (segmentation == "exact")),
            "{report}"
        );
        applied.nothing_unintended()?;
        applied.stop()?;
    }
    before.must_be_that_of(&bed.left)
}

/// A cgroup that is not there yet, as before a service is started; then it comes, and is made anew with another id.
fn anew(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let own = Own::new(setting, &["a"])?;
    let profile = format!(
        "servers: {{ s: {{ latency: 30ms }} }}\nclasses: [{{ match: {{ cgroup: {}/b }}, egress: [s] }}]\n",
        own.name
    );
    let applied = setting.product.apply(&bed.left, &profile, setting.pacer)?;
    let name = format!("cgroup {}/b", own.name);
    for changes in 1..=2u64 {
        own.make("b")?;
        ensure!(
            own.ping(&bed, "a", Family::V4)? < 20.0,
            "another cgroup is delayed"
        );
        wait("its packets are delayed", || {
            Ok(is(setting, own.ping(&bed, "b", Family::V4)?, 30.0))
        })?;
        let report = &setting.product.status(&bed.left)?[0];
        ensure!(report["named_hosts"][&name]["changes"] == changes, "{report}");
        wait("its processes are gone", || {
            Ok(fs::remove_dir(own.path("b")).is_ok())
        })?;
    }
    wait("that it is gone is counted", || {
        let report = &setting.product.status(&bed.left)?[0];
        Ok(report["named_hosts"][&name]["failures"].as_u64() > Some(0))
    })?;
    applied.stop()?;
    // A name that is nearly right, and what comes in.
    let refused = |text: &str, why: &str, code: i32| -> Result<()> {
        let path = setting.product.profile(text)?;
        let arguments = [
            "apply",
            &*path.to_string_lossy(),
            "--iface",
            INTERFACE,
            "--for",
            "1s",
        ];
        let called = setting.product.call(&bed.left, &arguments)?;
        ensure!(
            called.code() == code && called.stderr.contains(why),
            "{why}: {called:?}"
        );
        Ok(())
    };
    own.make("postgresql.service")?;
    refused(&profile.replace("/b }", "/postgres.service }"), "did you mean", 0)?;
    refused(&profile.replace("egress", "ingress"), "no socket yet", 2)?;
    before.must_be_that_of(&bed.left)
}
