//! Hosts with a share of a processor each, by CPU quotas of cgroups: for more hosts than this machine has processors.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::Context as _;
use nix::{
    sched::{CpuSet, sched_setaffinity},
    unistd::Pid,
};
use perturb_clock::{Priority, set_priority};

/// Where cgroups are.
const ROOT: &str = "/sys/fs/cgroup";
/// The least quota that the kernel takes, us: the shorter, the less a message waits for its host's next turn.
const QUOTA_US: f64 = 1000.0;
/// The kernel looks whether a quota is used up when it schedules, else at its clock's ticks, up to 10 ms apart. So on each
/// processor a thread wakes up so often.
const LOOK: Duration = Duration::from_micros(250);

/// A cgroup for each host, as long as this lives. Its processes leave their session's group, and that group's limits. Version 2 was
/// not tried: where this was written there is version 1.
pub(super) struct Shares {
    /// Of h1, h2, …
    groups: Vec<PathBuf>,
    /// Of a processor, each.
    pub share: f64,
    over: Arc<AtomicBool>,
    looking: Vec<JoinHandle<()>>,
    /// Version 2's list of controllers, if the one for processors was not in it.
    added_to: Option<PathBuf>,
}

impl Shares {
    /// Limits `hosts` hosts to a share of a processor.
    ///
    /// # Errors
    ///
    /// Without a controller for processors, or the right to make cgroups.
    pub(super) fn new(hosts: usize, processors: usize, share: f64) -> anyhow::Result<Self> {
        let root = Path::new(ROOT);
        let unified = fs::read_to_string(root.join("cgroup.controllers")).ok();
        let mut added_to = None;
        let (directory, settings) = match unified {
            Some(controllers) if controllers.split_whitespace().any(|one| one == "cpu") => {
                let children = root.join("cgroup.subtree_control");
                let before = fs::read_to_string(&children).unwrap_or_default();
                fs::write(&children, "+cpu").with_context(|| children.display().to_string())?;
                let had = before.split_whitespace().any(|one| one == "cpu");
                added_to = (!had).then_some(children);
                let quota = ("cpu.max", format!("{QUOTA_US:.0} {:.0}", QUOTA_US / share));
                (root.to_owned(), vec![quota, ("cpu.weight", "10000".to_owned())])
            }
            // Version 1.
            _ => {
                let period = ("cpu.cfs_period_us", format!("{:.0}", QUOTA_US / share));
                let quota = ("cpu.cfs_quota_us", format!("{QUOTA_US:.0}"));
                let weight = ("cpu.shares", "100000".to_owned());
                (root.join("cpu"), vec![period, quota, weight])
            }
        };
        let over = Arc::new(AtomicBool::new(false));
        let mut shares = Self {
            groups: Vec::new(),
            share,
            over: over.clone(),
            looking: Vec::new(),
            added_to,
        };
        remove_dead(&directory);
        for host in 1..=hosts {
            let group = directory.join(format!("perturb-{}-h{host}", std::process::id()));
            // One of a process that was killed, whose number this one has now.
            let _ = fs::remove_dir(&group);
            fs::create_dir(&group).with_context(|| format!("making {}", group.display()))?;
            shares.groups.push(group.clone());
            for (name, value) in &settings {
                let path = group.join(name);
                fs::write(&path, value).with_context(|| format!("writing {}", path.display()))?;
            }
        }
        shares.looking = (0..processors)
            .map(|processor| {
                let over = over.clone();
                thread::spawn(move || look(processor, &over))
            })
            .collect();
        Ok(shares)
    }

    /// How a shell moves itself to the group of its host, whose name is in `$host`.
    pub(super) fn enter(&self) -> String {
        let first = self.groups.first().map(|group| group.to_string_lossy());
        let prefix = first.as_deref().and_then(|group| group.strip_suffix("h1"));
        format!(
            "echo 0 > '{}'\"$host\"/cgroup.procs || exit\n",
            prefix.unwrap_or_default()
        )
    }
}

fn is_ours(group: &fs::DirEntry) -> bool {
    group.file_name().to_string_lossy().starts_with("perturb-")
}

/// Removes what processes left that were killed.
fn remove_dead(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name
            .strip_prefix("perturb-")
            .and_then(|rest| rest.split_once("-h"));
        if owner.is_some_and(|(number, _)| !Path::new("/proc").join(number).exists()) {
            // Of a group with processes the kernel refuses it.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Has the scheduler look at a processor's quotas.
fn look(processor: usize, over: &AtomicBool) {
    let mut here = CpuSet::new();
    // Without it, or without priority, quotas are kept less exactly.
    let _ = here
        .set(processor)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &here));
    set_priority(Priority::RealTime);
    while !over.load(Ordering::Relaxed) {
        thread::sleep(LOOK);
    }
}

impl Drop for Shares {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.looking.drain(..) {
            let _ = thread.join();
        }
        for group in &self.groups {
            // The last of its processes may not be reaped yet.
            let removed = (0..100).any(|_| {
                fs::remove_dir(group).is_ok() || {
                    thread::sleep(Duration::from_millis(10));
                    false
                }
            });
            if !removed {
                log::warn!("{} is left; remove it with rmdir", group.display());
            }
        }
        // Another run may have groups there, too.
        let is_last =
            || fs::read_dir(ROOT).is_ok_and(|mut all| !all.any(|one| one.is_ok_and(|one| is_ours(&one))));
        if let Some(children) = &self.added_to
            && is_last()
        {
            let _ = fs::write(children, "-cpu");
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::unistd::geteuid;

    use super::*;

    #[test]
    fn groups_go_with_it() {
        if !geteuid().is_root() {
            return;
        }
        let directory = Path::new(ROOT).join("cpu");
        // Version 2 may refuse the controller to a container.
        let found = Shares::new(2, 1, 0.4);
        let Ok(shares) = found else {
            assert!(!directory.is_dir(), "{:#}", found.err().unwrap());
            return;
        };
        drop(shares);
        // No process has this number.
        let dead = directory.join("perturb-4194305-h1");
        let _ = fs::create_dir(&dead);
        let shares = Shares::new(2, 1, 0.4).unwrap();
        assert!(!dead.exists());
        let groups = shares.groups.clone();
        let quota = ["cpu.cfs_quota_us", "cpu.max"]
            .iter()
            .find_map(|name| fs::read_to_string(groups[0].join(name)).ok());
        assert!(quota.unwrap().starts_with(&format!("{QUOTA_US:.0}")));
        assert!(shares.enter().contains("-'\"$host\"/cgroup.procs"));
        assert!(groups.iter().all(|group| group.is_dir()));
        drop(shares);
        assert!(!groups.iter().any(|group| group.exists()));
    }
}
