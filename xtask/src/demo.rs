//! `cargo xtask demo`: the main job on this machine, with nothing set up beforehand.
//!
//! A ping over an emulated network, then a table of what was asked against what was observed, beside no emulation
//! and netem. It runs in the sandbox, whose kernel has all that is compared and where root is not needed.

use std::{
    ffi::{OsStr, OsString},
    process::ExitCode,
};

use anyhow::Result;
use perturb_sandbox::{Sandbox, Task, exit_code};

use crate::{
    command::{run, say},
    compile,
    setup::{self, Mode},
    workspace,
};

const PROFILE: &str = "configs/simple.yaml";

/// How long the demonstration measures.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Packets per delay
    #[arg(long, default_value_t = 500)]
    packets: u32,
    /// Seconds per throughput
    #[arg(long, default_value_t = 2)]
    seconds: u32,
}

pub(crate) fn demonstrate(args: &Args) -> Result<ExitCode> {
    setup::run(&setup::Args::default())?;
    let built = compile::build(compile::Args { release: true }, Mode::Check)?;
    let target = workspace::target()?;
    let mut cargo = compile::cargo("build", &built.object);
    cargo
        .args([
            "--release",
            "--package",
            "perturb-tests",
            "--bin",
            "compare",
            "--target-dir",
        ])
        .arg(&target);
    run(&mut cargo)?;

    let perturb = built.program.as_os_str();
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
    let code = inside(&ping)?;
    if code != 0 {
        return Ok(ExitCode::from(code));
    }
    let compare = target.join("release/compare");
    let (packets, seconds) = (args.packets.to_string(), args.seconds.to_string());
    let compare: [&OsStr; 5] = [
        compare.as_os_str(),
        "--packets".as_ref(),
        packets.as_ref(),
        "--seconds".as_ref(),
        seconds.as_ref(),
    ];
    Ok(ExitCode::from(inside(&compare)?))
}

fn inside(argv: &[&OsStr]) -> Result<u8> {
    say(&format!(
        "in the sandbox: {}",
        argv.join(OsStr::new(" ")).display()
    ));
    let argv: Vec<OsString> = argv.iter().map(|word| (*word).to_owned()).collect();
    Ok(exit_code(Sandbox::find()?.run(&Task::new(argv)?)?))
}
