//! Packets that a test's own cgroup sends.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use perturb_dataplane::programs::Pacer;
use perturb_profile::Files;

use super::Rig;

/// A cgroup that this process is in, until this is dropped.
pub(crate) struct Own(PathBuf);

impl Own {
    /// `None` if none can be made.
    pub(crate) fn enter() -> Option<Self> {
        let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
        let root = roots
            .into_iter()
            .find(|root| root.join("cgroup.controllers").exists())?;
        let own = Self(root.join(format!("perturb-cost-{}", std::process::id())));
        fs::create_dir(&own.0).ok()?;
        fs::write(own.0.join("cgroup.procs"), "0").ok()?;
        Some(own)
    }

    /// A profile of one server whose class has its packets only: a test packet's socket is of its maker's.
    pub(crate) fn rig(&self, profile: &str) -> Option<Rig> {
        let name = self.0.file_name().unwrap().to_str().unwrap();
        let of_own = format!("match: {{ cgroup: {name} }}, egress: [s0]");
        let text = profile.replace("match: {}, egress: [s0], ingress: [s0]", &of_own);
        let mut rig = Rig::with_flows(&text, Pacer::Fq, 131_072)?;
        let profile = perturb_profile::parse(&text).unwrap();
        let id = fs::metadata(&self.0).unwrap().ino();
        let named = profile.named_cgroups().into_iter();
        let mut files = Files::default();
        files.cgroups.ids = named.map(|cgroup| (cgroup.clone(), id)).collect();
        rig.load_tables(perturb_profile::compile(&profile, &files).unwrap());
        Some(rig)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let above = self.0.parent().unwrap().join("cgroup.procs");
        fs::write(above, "0").unwrap();
        fs::remove_dir(&self.0).unwrap();
    }
}
