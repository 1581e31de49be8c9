//! `cargo xtask dist`: packages for machines without a compiler, below `target/dist`.
//!
//! Model: one tree for each processor, as it is to lie below `/`. The archive, the Debian package, the rpm and the image are
//! that tree in four wrappings, so that none of them has a list of files of its own. Times are those of the last commit, and
//! nothing names a directory of this machine, so that two builds of a commit can be equal.

mod again;
mod cross;
mod image;
mod sbom;
mod wrap;

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result};

use crate::{
    arch::Arch,
    command::{find, output, run, say},
    compile,
    setup::{self, Mode},
    workspace,
};
use wrap::{Effort, Wrapping};

const VERSION: &str = env!("CARGO_PKG_VERSION");
const ABOUT: &str = "network emulator with LogGP parameters as knobs";

/// For which processors.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Processors to make programs for
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["x86_64", "aarch64"])]
    arch: Vec<Arch>,
    /// Only packages around a program that is built already, as tests use them; they need this system's C library
    #[arg(long, value_name = "PROGRAM", conflicts_with = "arch")]
    around: Option<PathBuf>,
    /// Build the last commit again in a clone elsewhere, and fail unless all files are equal; takes twice as long
    #[arg(long, conflicts_with = "around")]
    twice: bool,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            arch: vec![Arch::X86, Arch::Arm],
            around: None,
            twice: false,
        }
    }
}

/// Shells, and where below /usr/share they look for completions of `perturb`.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "bash-completion/completions/perturb"),
    ("zsh", "zsh/vendor-completions/_perturb"),
    ("fish", "fish/vendor_completions.d/perturb.fish"),
];

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

/// The static program for a processor, built if it is not there.
pub(crate) fn program(arch: Arch) -> Result<PathBuf> {
    let tools = setup::tools(Mode::Check)?;
    let object = stripped(&compile::object(&tools)?)?;
    cross::program(arch, &object, &tools.compiler)
}

/// Builds everything; the directory it is in.
pub(crate) fn build(args: &Args) -> Result<PathBuf> {
    if let Some(program) = &args.around {
        return around(program);
    }
    let twice = args.twice.then(again::committed).transpose()?;
    let tools = setup::tools(Mode::Check)?;
    let object = stripped(&compile::object(&tools)?)?;
    let dist = fresh("dist")?;
    let epoch = epoch()?;
    // It prints its pages and completions, which are the same for all processors.
    let printer = cross::program(Arch::of_this_machine()?, &object, &tools.compiler)?;
    for &arch in &args.arch {
        let program = cross::program(arch, &object, &tools.compiler)?;
        let tree = workspace::own()?.join("tree").join(arch.name());
        lay_out(&tree, &program, &printer, &epoch)?;
        let name = format!("perturb-{VERSION}-{}", arch.name());
        let wrapping = Wrapping {
            tree: &tree,
            arch,
            epoch: &epoch,
            effort: Effort::Most,
        };
        wrap::archive(wrapping, &dist.join(format!("{name}.tar.gz")))?;
        image::write(wrapping, &dist.join(format!("{name}.oci.tar")))?;
        wrap::rpm(wrapping, &dist)?;
        wrap::deb(wrapping, &dist, "")?;
        let sbom = dist.join(format!("{name}.cdx.json"));
        sbom::write(&sbom, &cross::target(arch), &created(&epoch)?, &tools.compiler)?;
    }
    wrap::source(&dist, &object)?;
    wrap::sums(&dist)?;
    if let Some(commit) = twice {
        again::compare(&dist, &commit, &args.arch)?;
    }
    Ok(dist)
}

/// The same wrappings, but around a program that is built already, needs this machine's C library, and is for this
/// machine's processor: what tests of the wrappings need takes seconds. A wrapping whose tool is missing is left out.
pub(crate) fn around(program: &Path) -> Result<PathBuf> {
    let dist = fresh("xtask/packages")?;
    let (arch, epoch) = (Arch::of_this_machine()?, epoch()?);
    let tree = workspace::own()?.join("tree/built");
    let stripped = workspace::own()?.join("perturb");
    let mut strip = Command::new("strip");
    run(strip.arg("-o").arg(&stripped).arg(program))?;
    lay_out(&tree, &stripped, program, &epoch)?;
    let name = format!("perturb-{VERSION}-{}", arch.name());
    let wrapping = Wrapping {
        tree: &tree,
        arch,
        epoch: &epoch,
        effort: Effort::Least,
    };
    wrap::archive(wrapping, &dist.join(format!("{name}.tar.gz")))?;
    image::write(wrapping, &dist.join(format!("{name}.oci.tar")))?;
    if find("dpkg-deb").is_some() {
        wrap::deb(wrapping, &dist, "libc6, libgcc-s1")?;
    }
    if find("rpmbuild").is_some() {
        wrap::rpm(wrapping, &dist)?;
    }
    wrap::sums(&dist)?;
    Ok(dist)
}

/// The object without debug information, which is four fifths of it; kernels read BTF alone.
fn stripped(object: &Path) -> Result<PathBuf> {
    // Under the name that the sources' build looks for.
    let directory = workspace::own()?.join("stripped");
    fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let to = directory.join("perturb.bpf.o");
    let new = directory.join("new");
    let mut strip = Command::new("llvm-objcopy");
    run(strip.arg("--strip-debug").arg(object).arg(&new))
        .context("`cargo xtask setup --with dist` installs what is missing")?;
    compile::copy_if_changed(&new, &to).with_context(|| format!("cannot write {}", to.display()))?;
    Ok(to)
}

/// An empty directory below the target directory.
fn fresh(name: &str) -> Result<PathBuf> {
    let directory = workspace::target()?.join(name);
    clear(&directory)?;
    fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    Ok(directory)
}

fn clear(directory: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory).with_context(|| format!("cannot remove {}", directory.display()))?;
    }
    Ok(())
}

/// The time of the last commit, s.
fn epoch() -> Result<String> {
    let epoch = output(git().args(["log", "-1", "--format=%ct"])).context("git tells no time of a commit")?;
    Ok(epoch.trim().to_owned())
}

/// A time as documents have it.
fn created(epoch: &str) -> Result<String> {
    let date = output(Command::new("date").args(["-u", "-d", &format!("@{epoch}"), "+%FT%TZ"]));
    Ok(date.context("date failed")?.trim().to_owned())
}

/// The tree of one package.
fn lay_out(tree: &Path, program: &Path, printer: &Path, epoch: &str) -> Result<()> {
    say(&format!("laying out {}", tree.display()));
    clear(tree)?;
    let usr = tree.join("usr");
    let root = workspace::root();
    put(program, &usr.join("bin/perturb"))?;
    for (shell, file) in COMPLETIONS {
        let path = usr.join("share").join(file);
        make_parent(&path)?;
        let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let mut print = Command::new(printer);
        run(print.args(["completions", shell]).stdout(Stdio::from(file)))?;
    }
    let man = usr.join("share/man/man1");
    fs::create_dir_all(&man).with_context(|| format!("cannot make {}", man.display()))?;
    run(Command::new(printer).arg("man").arg(&man))?;
    for (file, place) in PACKAGING {
        let from = root.join("packaging").join(file);
        let name = from.file_name().context("a file has a name")?;
        put(&from, &usr.join(place).join(name))?;
    }
    let documents = usr.join("share/doc/perturb");
    for file in [
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "ebpf-prog/LICENSE-GPL2",
        "README.md",
        "CHANGELOG.md",
    ] {
        let name = Path::new(file).file_name().context("a file has a name")?;
        put(&root.join(file), &documents.join(name))?;
    }
    put(&root.join("packaging/copyright"), &documents.join("copyright"))?;
    // Only what is committed: no results of experiments that lie beside them.
    for (directory, place) in [
        ("docs", documents.join("book")),
        ("configs", usr.join("share/perturb/configs")),
    ] {
        let listed = output(git().args(["ls-files", "-z", "--", directory])).context("git lists no files")?;
        for file in listed.split_terminator('\0') {
            let name = Path::new(file)
                .strip_prefix(directory)
                .context("git lists other files")?;
            put(&root.join(file), &place.join(name))?;
        }
    }
    run(Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(tree))?;
    // Files of a clone are as old as the clone.
    let mut touch = Command::new("find");
    touch.arg(tree).args(["-exec", "touch", "--no-dereference"]);
    run(touch.arg(format!("--date=@{epoch}")).args(["{}", "+"]))
}

/// Copies a file and its mode.
fn put(from: &Path, to: &Path) -> Result<()> {
    make_parent(to)?;
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

fn make_parent(path: &Path) -> Result<()> {
    let parent = path.parent().context("a file is in a directory")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))
}

fn git() -> Command {
    let mut git = Command::new("git");
    git.current_dir(workspace::root());
    git
}
