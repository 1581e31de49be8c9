//! `cargo xtask demo`: the main job on this machine, with nothing set up beforehand.
//!
//! A ping over an emulated network, then a table of what was asked against what was observed, beside no emulation
//! and whatever else this kernel has. It runs on this kernel for root, else in the sandbox, whose kernel has
//! all that is compared.

use std::{
    ffi::{OsStr, OsString},
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result};
use perturb_sandbox::{Sandbox, Task, exit_code};

use crate::{
    command::{run, say},
    compile::{self, Profile},
    setup::{self, Mode, packages},
    workspace,
};

const PROFILE: &str = "configs/simple.yaml";

/// How long the demonstration measures.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Packets per delay
    #[arg(long, default_value_t = 100)]
    packets: u32,
    /// Seconds per throughput
    #[arg(long, default_value_t = 1)]
    seconds: u32,
    /// In the sandbox, where netem and sch_fq are; so it is without root
    #[arg(long)]
    sandbox: bool,
}

pub(crate) fn demonstrate(args: &Args) -> Result<ExitCode> {
    setup::run(&setup::Args::default())?;
    let object = compile::object(&setup::tools(Mode::Check)?)?;
    let target = workspace::target()?;
    // One call: what both need is compiled once.
    let mut cargo = compile::cargo("build", &object);
    cargo
        .args([
            "--profile",
            Profile::Demo.name(),
            "--package",
            "perturb",
            "--package",
            "perturb-tests",
        ])
        .args(["--bin", "perturb", "--bin", "compare", "--target-dir"])
        .arg(&target);
    run(&mut cargo)?;
    let programs = target.join(Profile::Demo.folder());

    let perturb = programs.join("perturb");
    let perturb = perturb.as_os_str();
    let profile = workspace::root().join(PROFILE);
    let ping: [&OsStr; 8] = [
        perturb,
        "run".as_ref(),
        profile.as_os_str(),
        "--".as_ref(),
        "ping".as_ref(),
        "-c".as_ref(),
        "3".as_ref(),
        "h2".as_ref(),
    ];
    let sandbox = args.sandbox || !packages::is_root();
    let code = start(&ping, sandbox)?;
    if code != 0 {
        return Ok(ExitCode::from(code));
    }
    let compare = programs.join("compare");
    let (packets, seconds) = (args.packets.to_string(), args.seconds.to_string());
    let compare: [&OsStr; 5] = [
        compare.as_os_str(),
        "--packets".as_ref(),
        packets.as_ref(),
        "--seconds".as_ref(),
        seconds.as_ref(),
    ];
    let code = start(&compare, sandbox)?;
    if code == 0 && !sandbox {
        say("`cargo xtask demo --sandbox` compares with netem, sch_fq and the other pacer as well");
    }
    Ok(ExitCode::from(code))
}

/// Runs a command here or in the sandbox; its exit code.
fn start(argv: &[&OsStr], sandbox: bool) -> Result<u8> {
    let place = if sandbox { "in the sandbox" } else { "here" };
    let line = argv.join(OsStr::new(" "));
    say(&format!("{place}: {}", line.display()));
    let status = if sandbox {
        let argv: Vec<OsString> = argv.iter().map(|word| (*word).to_owned()).collect();
        Sandbox::find()?.run(&Task::new(argv)?)?
    } else {
        Command::new(argv[0])
            .args(&argv[1..])
            .status()
            .with_context(|| format!("cannot run {}", line.display()))?
    };
    Ok(exit_code(status))
}
