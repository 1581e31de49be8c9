//! Debian's stock kernels, for the machine with several processors: downloaded and unpacked, never installed.
//!
//! Model: below the target directory, a directory for each kernel package. `stable` is what the distribution's
//! `linux-image-amd64` depends on, `newest` what that of its backports does. The sources of apt that this machine has
//! say where the backports are: a private configuration of apt has the same mirror with another suite. The machine's
//! own lists, sources and packages stay as they are.

use std::{
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
    command::{find, output, run, run_over_network, say},
    workspace,
};

/// The package that always depends on the suite's current kernel.
const CURRENT: &str = "linux-image-amd64";
/// Keys of the archive, where Debian keeps them.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Which stock kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// The distribution's.
    Stable,
    /// That of the distribution's backports.
    Newest,
    /// That of a package, of either.
    Package(String),
}

impl FromStr for Kernel {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "stable" => Ok(Self::Stable),
            "newest" => Ok(Self::Newest),
            name if name.starts_with("linux-image-") && !name.contains('/') => {
                Ok(Self::Package(name.to_owned()))
            }
            _ => Err("a kernel is `stable`, `newest`, or a package linux-image-…".into()),
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stable => "stable",
            Self::Newest => "newest",
            Self::Package(name) => name,
        })
    }
}

impl Kernel {
    /// Where it was unpacked to, if it was.
    pub(crate) fn unpacked(&self) -> Result<PathBuf> {
        let place = cache()?.join(self.to_string());
        let real = fs::canonicalize(&place);
        real.with_context(|| {
            format!(
                "no kernel `{self}` in {}: `cargo xtask setup --with vm` downloads it",
                place.display()
            )
        })
    }

    /// Its directory; what is missing, the programs that it needs among it, is installed or downloaded first.
    pub(crate) fn ready(&self) -> Result<PathBuf> {
        packages::ensure(&[Group::Vm], Mode::Install)?;
        self.unpacked().or_else(|_| self.ensure(Mode::Install))
    }

    /// Downloads and unpacks it if that was not done yet; its directory.
    pub(crate) fn ensure(&self, mode: Mode) -> Result<PathBuf> {
        if mode == Mode::Check {
            return self.unpacked();
        }
        let ensured = match self {
            Self::Stable => Apt::Own.current().and_then(|package| unpack(&Apt::Own, &package)),
            Self::Newest => {
                Apt::backports().and_then(|apt| apt.current().and_then(|package| unpack(&apt, &package)))
            }
            Self::Package(name) => {
                let own = unpack(&Apt::Own, name);
                own.or_else(|error| {
                    Apt::backports()
                        .and_then(|apt| unpack(&apt, name))
                        .map_err(|_| error)
                })
            }
        };
        match ensured {
            Ok(directory) => {
                self.link(&directory)?;
                Ok(directory)
            }
            // What an earlier set-up has unpacked serves without a network.
            Err(error) => self.unpacked().map_err(|_| error),
        }
    }

    /// Gives the directory of a package the name by which this kernel is asked for.
    fn link(&self, directory: &Path) -> Result<()> {
        let link = cache()?.join(self.to_string());
        if link == directory || fs::canonicalize(&link).is_ok_and(|target| target == directory) {
            return Ok(());
        }
        // A link to an older kernel, or none.
        let _: std::io::Result<()> = fs::remove_file(&link);
        std::os::unix::fs::symlink(directory, &link)
            .with_context(|| format!("cannot link {}", link.display()))
    }
}

fn cache() -> Result<PathBuf> {
    let cache = workspace::own()?.join("kernels");
    fs::create_dir_all(&cache).with_context(|| format!("cannot make {}", cache.display()))?;
    Ok(cache)
}

/// The kernel as one directory with boot/vmlinuz-RELEASE and lib/modules/RELEASE.
fn unpack(apt: &Apt, package: &str) -> Result<PathBuf> {
    let cache = cache()?;
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
            .args(["download", package])
            .current_dir(&partial),
    )?;
    let archive = fs::read_dir(&partial)?
        .flatten()
        .map(|file| file.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .with_context(|| format!("apt-get has downloaded no package to {}", partial.display()))?;
    run(Command::new("dpkg-deb")
        .arg("--extract")
        .arg(&archive)
        .arg(&partial))?;
    fs::remove_file(&archive).with_context(|| format!("cannot remove {}", archive.display()))?;
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
    }
    fs::rename(&partial, &directory).with_context(|| format!("cannot rename {}", partial.display()))?;
    Ok(directory)
}

/// A configuration of apt.
#[derive(Debug, Clone)]
enum Apt {
    /// The machine's.
    Own,
    /// Another suite of the same mirror; the directory has its sources and lists.
    Private(PathBuf),
}

impl Apt {
    /// The backports of the distribution, their lists fetched.
    fn backports() -> Result<Self> {
        let directory = workspace::own()?.join("backports");
        fs::create_dir_all(directory.join("lists/partial"))
            .with_context(|| format!("cannot make {}", directory.display()))?;
        fs::write(directory.join("sources.list"), backports_source()?)
            .with_context(|| format!("cannot write into {}", directory.display()))?;
        let apt = Self::Private(directory);
        let mut update = apt.command("apt-get");
        // Without this a repository that cannot be reached is a warning.
        run_over_network(update.args(["-o", "APT::Update::Error-Mode=any", "update"]))
            .context("the backports of this distribution cannot be reached")?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.args(["-q", "-o", "APT::Sandbox::User=root"]);
        if let Self::Private(directory) = self {
            for (key, path) in [
                ("Dir::Etc::sourcelist", directory.join("sources.list")),
                ("Dir::Etc::sourceparts", directory.join("none")),
                ("Dir::State::lists", directory.join("lists")),
                ("Dir::Cache", directory.join("cache")),
            ] {
                command.arg("-o").arg(format!("{key}={}", path.display()));
            }
        }
        command
    }

    /// The package of the suite's current kernel.
    fn current(&self) -> Result<String> {
        if matches!(self, Self::Own) && !packages::is_available(CURRENT, Mode::Install) {
            bail!("this distribution has no package {CURRENT}");
        }
        let depends = output(self.command("apt-cache").args(["depends", CURRENT]));
        let depends = depends.with_context(|| format!("apt-cache does not know {CURRENT}"))?;
        let name = depends
            .lines()
            .find_map(|line| line.trim().strip_prefix("Depends: "));
        let name = name.filter(|name| name.starts_with("linux-image-"));
        Ok(name
            .with_context(|| format!("{CURRENT} depends on no kernel"))?
            .to_owned())
    }
}

/// The line for apt that stands for the backports, on the mirror from which this machine has the distribution itself.
fn backports_source() -> Result<String> {
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
    let keys = if Path::new(KEYS).is_file() {
        format!("[signed-by={KEYS}] ")
    } else {
        String::new()
    };
    Ok(format!("deb {keys}{mirror} {codename}-backports main\n"))
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
        for word in ["stable", "newest", "linux-image-6.1.0-1-amd64"] {
            assert_eq!(word.parse::<Kernel>().unwrap().to_string(), word);
        }
        for word in ["", "6.1", "linux-image-../..", "/stable"] {
            assert!(word.parse::<Kernel>().is_err(), "{word}");
        }
    }
}
