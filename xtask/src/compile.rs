//! `cargo xtask build`: the eBPF object, then the program that carries it.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use crate::{
    command::run,
    setup::{
        self, Mode, Tools,
        compiler::{self, Compiler},
    },
    workspace,
};

/// The variable by which the build script of the crate that loads programs finds the object.
pub(crate) const OBJECT_VARIABLE: &str = "PERTURB_BPF_OBJECT";

/// How the program is compiled; the eBPF object is always optimized.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Args {
    /// Optimize
    #[arg(long, short)]
    pub(crate) release: bool,
}

/// A profile of cargo's, by which the program is compiled: see the workspace's manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// For those who change it.
    Dev,
    /// Soon there, and fast where packets and clocks are.
    Demo,
    /// For users, and for figures.
    Release,
}

impl Profile {
    /// Its name for `cargo --profile`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Demo => "demo",
            Self::Release => "release",
        }
    }

    /// Where its results are, below the target directory.
    pub(crate) fn folder(self) -> &'static str {
        match self {
            Self::Dev => "debug",
            Self::Demo | Self::Release => self.name(),
        }
    }
}

impl From<Args> for Profile {
    fn from(args: Args) -> Self {
        if args.release { Self::Release } else { Self::Dev }
    }
}

/// Where the results are.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) object: PathBuf,
    pub(crate) program: PathBuf,
}

pub(crate) fn build(profile: Profile, mode: Mode) -> Result<Built> {
    let object = object(&setup::tools(mode)?)?;
    let target = workspace::target()?;
    let mut cargo = cargo("build", &object);
    cargo.args([
        "--package",
        "perturb",
        "--profile",
        profile.name(),
        "--target-dir",
    ]);
    run(cargo.arg(&target))?;
    let program = target.join(profile.folder()).join("perturb");
    Ok(Built { object, program })
}

/// What keeps this machine's directories out of what is compiled.
pub(crate) fn remaps(compiler: &Compiler) -> Result<Vec<String>> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| env::home_dir().map(|home| home.join(".cargo")));
    let rust = compiler.sysroot().context("rustc does not say where it is")?;
    Ok([
        (workspace::root(), "/perturb"),
        (workspace::target()?, "/target"),
        (home.context("there is no home directory")?, "/cargo"),
        (rust, "/rust"),
    ]
    .map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()))
    .to_vec())
}

/// The variable that tells cargo a target's linker. As a flag its path would be in the names of symbols.
pub(crate) fn linker_variable(target: &str) -> String {
    format!("CARGO_TARGET_{}_LINKER", target.to_uppercase().replace('-', "_"))
}

/// Compiles the eBPF programs; the path of the object they become.
pub(crate) fn object(tools: &Tools) -> Result<PathBuf> {
    let directory = workspace::own()?;
    let mut cargo = ebpf_cargo("build", tools, &directory)?;
    cargo.arg("--release");
    run(&mut cargo)?;
    let built = directory
        .join("ebpf")
        .join(compiler::target())
        .join("release/perturb");
    let object = directory.join("perturb.bpf.o");
    copy_if_changed(&built, &object)
        .with_context(|| format!("cannot copy {} to {}", built.display(), object.display()))?;
    Ok(object)
}

/// `cargo SUBCOMMAND` for the eBPF crate, with its flags.
pub(crate) fn ebpf_cargo(subcommand: &str, tools: &Tools, directory: &Path) -> Result<Command> {
    // The name rustc has for the host is the one aya-ebpf chooses the layout of registers by, but for one.
    let arch = if env::consts::ARCH.starts_with("riscv64") {
        "riscv64"
    } else {
        env::consts::ARCH
    };
    let mut flags = vec![
        format!("--cfg=bpf_target_arch=\"{arch}\""),
        "-Cdebuginfo=2".to_owned(),
        "-Clink-arg=--btf".to_owned(),
        // Atomics that return the old value are instructions since v3, which Linux has since 5.12.
        "-Ctarget-cpu=v3".to_owned(),
    ];
    flags.extend(remaps(&tools.compiler)?);
    let mut cargo = tools.compiler.cargo(subcommand);
    cargo
        .args(["--package", "perturb-ebpf", "--target-dir"])
        .arg(directory.join("ebpf"))
        .env(linker_variable(compiler::target()), &tools.linker)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .current_dir(workspace::root());
    Ok(cargo)
}

/// `cargo SUBCOMMAND` for the rest of the workspace, with the object inside.
pub(crate) fn cargo(subcommand: &str, object: &Path) -> Command {
    let mut cargo = Command::new("cargo");
    cargo
        .arg(subcommand)
        .env(OBJECT_VARIABLE, object)
        .current_dir(workspace::root());
    cargo
}

/// Leaves an equal file alone, so that what depends on it is not compiled again.
pub(crate) fn copy_if_changed(from: &Path, to: &Path) -> io::Result<()> {
    let new = fs::read(from)?;
    if fs::read(to).is_ok_and(|old| old == new) {
        Ok(())
    } else {
        fs::write(to, new)
    }
}
