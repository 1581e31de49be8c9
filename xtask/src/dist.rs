//! `cargo xtask dist`: what a package would install, below `target/dist`.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result};

use crate::{
    command,
    compile::{self, Profile},
    setup::Mode,
    workspace,
};

/// Shells, and the names under which they look for completions of `perturb`.
const COMPLETIONS: [(&str, &str); 3] = [("bash", "perturb"), ("zsh", "_perturb"), ("fish", "perturb.fish")];

/// Files for the system's services, for Grafana and for Kubernetes, and where a package installs them, below /usr.
const PACKAGING: [(&str, &str); 9] = [
    ("perturb@.service", "lib/systemd/system"),
    ("perturb@lo.service", "lib/systemd/system"),
    ("00-perturb.network", "lib/systemd/network"),
    ("00-perturb.link", "lib/systemd/network"),
    ("perturb-networkmanager.conf", "lib/NetworkManager/conf.d"),
    ("perturb-dashboard.json", "share/perturb"),
    ("perturb-api.json", "share/perturb"),
    ("kubernetes/perturb.yaml", "share/perturb/kubernetes"),
    ("kubernetes/Containerfile", "share/perturb/kubernetes"),
];

/// Builds everything; the directory it is in.
pub(crate) fn build() -> Result<PathBuf> {
    let built = compile::build(Profile::Release, Mode::Check)?;
    let dist = workspace::target()?.join("dist");
    if dist.exists() {
        fs::remove_dir_all(&dist).with_context(|| format!("cannot remove {}", dist.display()))?;
    }
    let (bin, man) = (directory(&dist, "bin")?, directory(&dist, "man/man1")?);
    fs::copy(&built.program, bin.join("perturb")).context("cannot copy the program")?;
    for (shell, file) in COMPLETIONS {
        let path = directory(&dist, &format!("completions/{shell}"))?.join(file);
        let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        command::run(
            Command::new(&built.program)
                .args(["completions", shell])
                .stdout(Stdio::from(file)),
        )?;
    }
    command::run(Command::new(&built.program).arg("man").arg(&man))?;
    for (file, place) in PACKAGING {
        let from = workspace::root().join("packaging").join(file);
        let name = from.file_name().context("a file has a name")?;
        fs::copy(&from, directory(&dist, place)?.join(name))
            .with_context(|| format!("cannot copy {}", from.display()))?;
    }
    for license in ["LICENSE-MIT", "LICENSE-APACHE", "ebpf-prog/LICENSE-GPL2"] {
        let from = workspace::root().join(license);
        let name = Path::new(license).file_name().context("a license has a name")?;
        fs::copy(&from, dist.join(name)).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    Ok(dist)
}

fn directory(dist: &Path, name: &str) -> Result<PathBuf> {
    let path = dist.join(name);
    fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
    Ok(path)
}
