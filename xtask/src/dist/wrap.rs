//! One tree in several wrappings, none of which tells who made it or when: SOURCE_DATE_EPOCH is the last commit's time.

use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result};

use super::{ABOUT, VERSION, git, make_parent};
use crate::{
    arch::Arch,
    command::{output, run},
    workspace,
};

/// What Debian's package and the rpm say of it.
const DESCRIPTION: &str = "An eBPF program holds packets as the network of a YAML profile would.";
pub(super) const LICENSE: &str = "(MIT OR Apache-2.0) AND (MIT OR GPL-2.0-only)";

/// How hard to compress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effort {
    /// For who waits for tests.
    Least,
    Most,
}

impl Effort {
    /// As tar starts it; neither tells a name or a time.
    pub(super) fn gzip(self) -> &'static str {
        match self {
            Self::Least => "--use-compress-program=gzip -1n",
            Self::Most => "--use-compress-program=gzip -9n",
        }
    }

    fn deb(self) -> &'static [&'static str] {
        match self {
            Self::Least => &["-Zgzip", "-z1"],
            Self::Most => &["-Zxz"],
        }
    }

    /// All rpms since 2008 can unpack either.
    fn rpm(self) -> &'static str {
        match self {
            Self::Least => "w1.gzdio",
            Self::Most => "w6.xzdio",
        }
    }
}

/// What is wrapped, how, and with which time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wrapping<'a> {
    pub(super) tree: &'a Path,
    pub(super) arch: Arch,
    /// s
    pub(super) epoch: &'a str,
    pub(super) effort: Effort,
}

/// The files below a directory, sorted, as paths from there.
pub(super) fn files(tree: &Path) -> Result<Vec<String>> {
    let mut find = Command::new("find");
    find.args([".", "-type", "f", "-printf", "%P\\n"])
        .current_dir(tree);
    let listed = output(&mut find).with_context(|| format!("find lists no files in {}", tree.display()))?;
    let mut files: Vec<_> = listed.lines().map(str::to_owned).collect();
    files.sort_unstable();
    Ok(files)
}

/// `tar`, up to the options of its archive and the names of files.
pub(super) fn tar(directory: &Path, epoch: &str) -> Command {
    let mut tar = Command::new("tar");
    tar.args([
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--format=gnu",
        "--sort=name",
    ])
    .arg("--mode=u=rwX,go=rX")
    .arg(format!("--mtime=@{epoch}"))
    .arg("-C")
    .arg(directory);
    tar
}

/// An archive of files alone: who unpacks it below / changes no directory there.
pub(super) fn archive(wrapping: Wrapping<'_>, to: &Path) -> Result<()> {
    let mut tar = tar(wrapping.tree, wrapping.epoch);
    tar.arg(wrapping.effort.gzip())
        .arg("-cf")
        .arg(to)
        .args(files(wrapping.tree)?);
    run(&mut tar)
}

/// Debian's package.
pub(super) fn deb(wrapping: Wrapping<'_>, dist: &Path, needs: &str) -> Result<()> {
    let Wrapping {
        tree,
        arch,
        epoch,
        effort,
    } = wrapping;
    let control = tree.join("DEBIAN/control");
    make_parent(&control)?;
    let arch = arch.other_name();
    let bytes = files(tree)?
        .iter()
        .map(|file| fs::metadata(tree.join(file)).map(|metadata| metadata.len()))
        .sum::<std::io::Result<u64>>()
        .with_context(|| format!("cannot look at the files of {}", tree.display()))?;
    let size = bytes.div_ceil(1024);
    let needs = if needs.is_empty() {
        String::new()
    } else {
        format!("Depends: {needs}\n")
    };
    fs::write(
        &control,
        format!(
            "Package: perturb\nVersion: {VERSION}\nArchitecture: {arch}\nMaintainer: The perturb authors <perturb@localhost>\n\
             Section: net\nPriority: optional\nInstalled-Size: {size}\n{needs}Suggests: iproute2, user-mode-linux\nDescription: {ABOUT}\n {DESCRIPTION}\n"
        ),
    )
    .with_context(|| format!("cannot write {}", control.display()))?;
    let mut build = Command::new("dpkg-deb");
    build
        .env("SOURCE_DATE_EPOCH", epoch)
        .arg("--root-owner-group")
        .args(effort.deb())
        .arg("--build")
        .arg(tree)
        .arg(dist.join(format!("perturb_{VERSION}_{arch}.deb")))
        .stdout(Stdio::null());
    run(&mut build)?;
    fs::remove_dir_all(tree.join("DEBIAN")).context("cannot remove the package's description")
}

/// The rpm.
pub(super) fn rpm(wrapping: Wrapping<'_>, dist: &Path) -> Result<()> {
    let Wrapping {
        tree,
        arch,
        epoch,
        effort,
    } = wrapping;
    let work = workspace::own()?.join("rpm");
    fs::create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;
    let spec = work.join("perturb.spec");
    let files = files(tree)?;
    fs::write(
        &spec,
        format!(
            "Name: perturb\nVersion: {VERSION}\nRelease: 1\nSummary: {ABOUT}\nLicense: {LICENSE}\nAutoReqProv: no\n\
             %description\n{DESCRIPTION}\n%install\ncp -a '{}'/. %{{buildroot}}\n%files\n/{}\n",
            tree.display(),
            files.join("\n/")
        ),
    )
    .with_context(|| format!("cannot write {}", spec.display()))?;
    let mut rpmbuild = Command::new("rpmbuild");
    for (name, value) in [
        ("_topdir", work.display().to_string()),
        ("_rpmdir", dist.display().to_string()),
        (
            "_rpmfilename",
            "%{name}-%{version}-%{release}.%{arch}.rpm".to_owned(),
        ),
        ("_buildhost", "localhost".to_owned()),
        ("_build_id_links", "none".to_owned()),
        ("_binary_payload", effort.rpm().to_owned()),
        ("debug_package", "%{nil}".to_owned()),
        ("__os_install_post", "%{nil}".to_owned()),
        ("use_source_date_epoch_as_buildtime", "1".to_owned()),
        ("clamp_mtime_to_source_date_epoch", "1".to_owned()),
    ] {
        rpmbuild.arg("--define").arg(format!("{name} {value}"));
    }
    rpmbuild
        .env("SOURCE_DATE_EPOCH", epoch)
        .args(["-bb", "--quiet", "--target", arch.name()])
        .arg(&spec);
    run(&mut rpmbuild)
}

/// The committed sources, with the object beside the programs', where the build finds it.
pub(super) fn source(dist: &Path, object: &Path) -> Result<()> {
    let name = format!("perturb-{VERSION}");
    let mut archive = git();
    archive
        .args(["archive", "--format=tar.gz"])
        .arg(format!("--prefix={name}/ebpf-prog/"))
        .arg(format!("--add-file={}", object.display()))
        .arg(format!("--prefix={name}/"))
        .arg("--output")
        .arg(dist.join(format!("{name}-source.tar.gz")))
        .arg("HEAD");
    run(&mut archive)
}

/// SHA256SUMS of what lies there.
pub(super) fn sums(dist: &Path) -> Result<()> {
    let mut names: Vec<_> = fs::read_dir(dist)
        .with_context(|| format!("cannot list {}", dist.display()))?
        .flatten()
        .filter(|entry| entry.path().is_file())
        .map(|entry| entry.file_name())
        .collect();
    names.sort_unstable();
    let file = File::create(dist.join("SHA256SUMS")).context("cannot write SHA256SUMS")?;
    let mut sum = Command::new("sha256sum");
    sum.arg("--")
        .args(names)
        .current_dir(dist)
        .stdout(Stdio::from(file));
    run(&mut sum)
}
