//! `cargo xtask lint`: formatting and lints, warnings being errors.

use std::process::Command;

use anyhow::Result;

use crate::{
    command::{self, output, run_over_network},
    compile,
    setup::{self, Mode},
    workspace,
};

pub(crate) fn run() -> Result<()> {
    for (subcommand, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        if output(cargo().args([subcommand, "--version"])).is_none() {
            run_over_network(Command::new("rustup").args(["component", "add", component]))?;
        }
    }
    command::run(cargo().args(["fmt", "--all", "--check"]))?;
    command::run(cargo().args(["clippy", "--all-targets", "--", "-D", "warnings"]))?;

    let tools = setup::tools(Mode::Install)?;
    tools.compiler.ensure_component("clippy")?;
    let mut clippy = compile::ebpf_cargo("clippy", &tools, &workspace::own()?)?;
    command::run(clippy.args(["--release", "--", "-D", "warnings"]))
}

fn cargo() -> Command {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(workspace::root());
    cargo
}
