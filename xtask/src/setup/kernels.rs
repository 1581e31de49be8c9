//! Debian's stock kernels, for the machine with several processors: downloaded and unpacked, never installed.
//!
//! Model: below the target directory, a directory for each kernel package. `stable` is what the distribution's
//! `linux-image-amd64` depends on, `newest` what that of its backports does, `unstable` what that of Debian's unstable does.
//! The sources of apt that this machine has say where the suites are: a private configuration of apt has the same mirror with
//! another suite, or with packages for another processor. The machine's own lists, sources and packages stay as they are.
//! Another processor's kernels see files of their own: a small system of the distribution, unpacked as well.

use std::{
    ffi::OsString,
    fmt, fs,
    path::{Path, PathBuf},
    process::Command,
    str::FromStr,
};

use anyhow::{Context as _, Result, bail};

use super::{
    Mode,
    packages::{self, Group},
};
use crate::{
    arch::Arch,
    command::{find, output, run, run_over_network, say},
    workspace,
};

/// Keys of the archive, where Debian keeps them.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// The suite that has the newest of everything.
const UNSTABLE: &str = "sid";
/// What another processor's system has.
const SYSTEM: &str = "coreutils,dash,ethtool,iproute2,iputils-ping,kmod,mount,procps,util-linux";

/// Which stock kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// The distribution's.
    Stable,
    /// That of the distribution's backports.
    Newest,
    /// That of Debian's unstable distribution.
    Unstable,
    /// That of a package, of any of these.
    Package(String),
}

impl FromStr for Kernel {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "stable" => Ok(Self::Stable),
            "newest" => Ok(Self::Newest),
            "unstable" => Ok(Self::Unstable),
            name if name.starts_with("linux-image-") && !name.contains('/') => {
                Ok(Self::Package(name.to_owned()))
            }
            _ => Err("a kernel is `stable`, `newest`, `unstable`, or a package linux-image-…".into()),
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stable => "stable",
            Self::Newest => "newest",
            Self::Unstable => "unstable",
            Self::Package(name) => name,
        })
    }
}

impl Kernel {
    /// Where it was unpacked to, if it was.
    pub(crate) fn unpacked(&self, arch: Arch) -> Result<PathBuf> {
        let place = cache(arch)?.join(self.to_string());
        let real = fs::canonicalize(&place);
        real.with_context(|| {
            format!(
                "no kernel `{self}` in {}: `cargo xtask setup --with vm` downloads it",
                place.display()
            )
        })
    }

    /// Its directory; what is missing, the programs that it needs among it, is installed or downloaded first.
    pub(crate) fn ready(&self, arch: Arch) -> Result<PathBuf> {
        packages::ensure(&[group(arch)], Mode::Install)?;
        self.unpacked(arch).or_else(|_| self.ensure(arch, Mode::Install))
    }

    /// Downloads and unpacks it if that was not done yet; its directory.
    pub(crate) fn ensure(&self, arch: Arch, mode: Mode) -> Result<PathBuf> {
        if mode == Mode::Check {
            return self.unpacked(arch);
        }
        let ensured = match self {
            Self::Package(name) => {
                let own = Apt::suite(Suite::Own, arch).and_then(|apt| unpack(&apt, arch, name));
                own.or_else(|error| {
                    let others = [Suite::Backports, Suite::Unstable].into_iter();
                    let mut found = others.map(|suite| unpack(&Apt::suite(suite, arch)?, arch, name));
                    found.find_map(Result::ok).ok_or(error)
                })
            }
            Self::Stable => current(Suite::Own, arch),
            Self::Newest => current(Suite::Backports, arch),
            Self::Unstable => current(Suite::Unstable, arch),
        };
        match ensured {
            Ok(directory) => {
                self.link(&directory, arch)?;
                Ok(directory)
            }
            // What an earlier set-up has unpacked serves without a network.
            Err(error) => self.unpacked(arch).map_err(|_| error),
        }
    }

    /// Gives the directory of a package the name by which this kernel is asked for.
    fn link(&self, directory: &Path, arch: Arch) -> Result<()> {
        let link = cache(arch)?.join(self.to_string());
        if link == directory || fs::canonicalize(&link).is_ok_and(|target| target == directory) {
            return Ok(());
        }
        // A link to an older kernel, or none.
        let _: std::io::Result<()> = fs::remove_file(&link);
        std::os::unix::fs::symlink(directory, &link)
            .with_context(|| format!("cannot link {}", link.display()))
    }
}

/// Programs that such a machine needs.
fn group(arch: Arch) -> Group {
    if arch.is_this_machine() {
        Group::Vm
    } else {
        Group::OtherVm
    }
}

fn cache(arch: Arch) -> Result<PathBuf> {
    let mut cache = workspace::own()?.join("kernels");
    if !arch.is_this_machine() {
        cache.push(arch.name());
    }
    fs::create_dir_all(&cache).with_context(|| format!("cannot make {}", cache.display()))?;
    Ok(cache)
}

/// The files of a machine with another processor.
pub(crate) fn system(arch: Arch) -> Result<PathBuf> {
    let system = cache(arch)?.join("system");
    if system.is_dir() {
        return Ok(system);
    }
    let partial = cache(arch)?.join("system.partial");
    let _: std::io::Result<()> = fs::remove_dir_all(&partial);
    let (codename, mirror) = release()?;
    // Unpacked, not installed: no program of it runs here.
    run_over_network(
        Command::new("mmdebstrap")
            .args(["--quiet", "--variant=extract", "--skip=check/qemu"])
            .arg("--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr")
            .arg(format!("--architectures={}", arch.other_name()))
            .arg(format!("--include={SYSTEM}"))
            .arg(&codename)
            .arg(&partial)
            .arg(&mirror),
    )?;
    for directory in ["dev", "proc", "root", "run", "sys", "tmp"] {
        fs::create_dir_all(partial.join(directory))?;
    }
    // As scripts of packages would have it.
    for (file, text) in [
        ("nsswitch.conf", "hosts: files\n"),
        ("hosts", "127.0.0.1 localhost\n"),
    ] {
        fs::write(partial.join("etc").join(file), text)?;
    }
    fs::rename(&partial, &system).with_context(|| format!("cannot rename {}", partial.display()))?;
    Ok(system)
}

/// The current kernel of a suite.
fn current(suite: Suite, arch: Arch) -> Result<PathBuf> {
    let apt = Apt::suite(suite, arch)?;
    unpack(&apt, arch, &apt.current(arch)?)
}

/// The kernel as one directory with boot/vmlinuz-RELEASE and lib/modules/RELEASE.
fn unpack(apt: &Apt, arch: Arch, package: &str) -> Result<PathBuf> {
    let cache = cache(arch)?;
    let directory = cache.join(package);
    if directory.is_dir() {
        return Ok(directory);
    }
    say(&format!(
        "the stock kernel {package} is missing; it is unpacked below {}",
        cache.display()
    ));
    let partial = cache.join(format!("{package}.partial"));
    if partial.exists() {
        fs::remove_dir_all(&partial).with_context(|| format!("cannot remove {}", partial.display()))?;
    }
    fs::create_dir_all(&partial).with_context(|| format!("cannot make {}", partial.display()))?;
    run_over_network(
        apt.command("apt-get")
            .arg("download")
            .arg(package)
            .args(apt.parts(package)?)
            .current_dir(&partial),
    )?;
    let archives: Vec<PathBuf> = fs::read_dir(&partial)?
        .flatten()
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .collect();
    if archives.is_empty() {
        bail!("apt-get has downloaded no package to {}", partial.display());
    }
    for archive in archives {
        run(Command::new("dpkg-deb")
            .arg("--extract")
            .arg(&archive)
            .arg(&partial))?;
        fs::remove_file(&archive).with_context(|| format!("cannot remove {}", archive.display()))?;
    }
    // Later releases of Debian have everything below /usr.
    let modules = partial.join("lib/modules");
    if !modules.is_dir() {
        fs::create_dir_all(partial.join("lib"))?;
        fs::rename(partial.join("usr/lib/modules"), &modules)
            .with_context(|| format!("{package} has no modules"))?;
    }
    for release in fs::read_dir(&modules)?.flatten() {
        let depmod = find("depmod").context("depmod is missing (Debian's package kmod)")?;
        run(Command::new(depmod)
            .arg("--basedir")
            .arg(&partial)
            .arg(release.file_name()))?;
        // So have they the kernel beside its modules.
        let image = release.path().join("vmlinuz");
        if image.is_file() {
            let boot = partial.join("boot");
            fs::create_dir_all(&boot)?;
            let mut name = OsString::from("vmlinuz-");
            name.push(release.file_name());
            fs::rename(&image, boot.join(name))
                .with_context(|| format!("cannot move {}", image.display()))?;
        }
    }
    fs::rename(&partial, &directory).with_context(|| format!("cannot rename {}", partial.display()))?;
    Ok(directory)
}

/// Where packages come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Suite {
    /// The distribution.
    Own,
    Backports,
    Unstable,
}

/// A configuration of apt.
#[derive(Debug, Clone)]
enum Apt {
    /// The machine's.
    Own,
    /// Another suite of the same mirror, or another processor; the directory has its sources and lists.
    Private(PathBuf, Arch),
}

impl Apt {
    /// A suite's packages for a processor, their lists fetched.
    fn suite(suite: Suite, arch: Arch) -> Result<Self> {
        if suite == Suite::Own && arch.is_this_machine() {
            return Ok(Self::Own);
        }
        let (codename, mirror) = release()?;
        let (name, suite) = match suite {
            Suite::Own => ("own", codename),
            Suite::Backports => ("backports", format!("{codename}-backports")),
            Suite::Unstable => ("unstable", UNSTABLE.to_owned()),
        };
        let mut directory = workspace::own()?.join(name);
        if !arch.is_this_machine() {
            directory.push(arch.name());
        }
        fs::create_dir_all(directory.join("lists/partial"))
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let keys = if Path::new(KEYS).is_file() {
            format!("[signed-by={KEYS}] ")
        } else {
            String::new()
        };
        // What this machine has installed says nothing about what another has.
        for (file, text) in [
            ("sources.list", format!("deb {keys}{mirror} {suite} main\n")),
            ("status", String::new()),
        ] {
            fs::write(directory.join(file), text)
                .with_context(|| format!("cannot write into {}", directory.display()))?;
        }
        let apt = Self::Private(directory, arch);
        let mut update = apt.command("apt-get");
        // Without this a repository that cannot be reached is a warning.
        run_over_network(update.args(["-o", "APT::Update::Error-Mode=any", "update"]))
            .with_context(|| format!("the suite {suite} cannot be reached"))?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.args(["-q", "-o", "APT::Sandbox::User=root"]);
        if let Self::Private(directory, arch) = self {
            for key in ["APT::Architecture", "APT::Architectures"] {
                command.arg("-o").arg(format!("{key}={}", arch.other_name()));
            }
            for (key, path) in [
                ("Dir::Etc::sourcelist", directory.join("sources.list")),
                ("Dir::Etc::sourceparts", directory.join("none")),
                ("Dir::State::lists", directory.join("lists")),
                ("Dir::State::status", directory.join("status")),
                ("Dir::Cache", directory.join("cache")),
            ] {
                command.arg("-o").arg(format!("{key}={}", path.display()));
            }
        }
        command
    }

    /// The packages that a package needs.
    fn needed(&self, package: &str) -> Result<Vec<String>> {
        let depends = output(self.command("apt-cache").args(["depends", package]));
        let depends = depends.with_context(|| format!("apt-cache does not know {package}"))?;
        let names = depends
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "));
        Ok(names.map(str::to_owned).collect())
    }

    /// The package of the suite's current kernel.
    fn current(&self, arch: Arch) -> Result<String> {
        let current = format!("linux-image-{}", arch.other_name());
        if matches!(self, Self::Own) && !packages::is_available(&current, Mode::Install) {
            bail!("this distribution has no package {current}");
        }
        let mut needed = self.needed(&current)?.into_iter();
        needed
            .find(|name| name.starts_with("linux-image-"))
            .with_context(|| format!("{current} depends on no kernel"))
    }

    /// Packages that have a part of a kernel since Debian has split it: of the same release.
    fn parts(&self, package: &str) -> Result<Vec<String>> {
        let release = package.strip_prefix("linux-image").unwrap_or(package);
        let mut needed = self.needed(package)?;
        needed.retain(|name| name.ends_with(release));
        Ok(needed)
    }
}

/// The distribution's release, and the mirror from which this machine has it.
fn release() -> Result<(String, String)> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let codename = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let codename = codename
        .context("/etc/os-release names no release of Debian")?
        .trim_matches('"');
    let format = "$(CREATED_BY)|$(ORIGIN)|$(RELEASE)|$(COMPONENT)|$(REPO_URI)";
    let sources = output(Command::new("apt-get").args(["indextargets", "--format", format]));
    let sources = sources.context("apt-get does not tell its sources")?;
    let mirror = mirror(&sources, codename);
    let mirror = mirror
        .with_context(|| format!("apt has no source of Debian's {codename}; `apt-get update` may help"))?;
    Ok((codename.to_owned(), mirror.to_owned()))
}

/// The address from which apt has the release's main component.
fn mirror<'a>(sources: &'a str, codename: &str) -> Option<&'a str> {
    sources.lines().find_map(|line| {
        let fields: Vec<&str> = line.splitn(5, '|').collect();
        match fields[..] {
            ["Packages", "Debian", release, "main", address] if release == codename => Some(address),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_that_of_the_release_itself() {
        let sources = "Packages|Debian|bookworm-security|main|http://mirror.example/security/\n\
                       Translations|Debian|bookworm|main|http://mirror.example/other/\n\
                       Packages|Elsewhere|bookworm|main|http://other.example/\n\
                       Packages|Debian|bookworm|main|http://mirror.example/debian/\n";
        assert_eq!(mirror(sources, "bookworm"), Some("http://mirror.example/debian/"));
        assert_eq!(mirror(sources, "trixie"), None);
    }

    #[test]
    fn a_kernel_is_named_by_role_or_package() {
        for word in ["stable", "newest", "unstable", "linux-image-6.1.0-1-amd64"] {
            assert_eq!(word.parse::<Kernel>().unwrap().to_string(), word);
        }
        for word in ["", "6.1", "linux-image-../..", "/stable"] {
            assert!(word.parse::<Kernel>().is_err(), "{word}");
        }
    }
}
